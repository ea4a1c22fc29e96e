"""How long a record of Kafka took until readers could see what gold makes of it: measured on the warehouse of LEDGER_HOME as it is.

    python -m tests.benchmarks.freshness [--since TIME]

From the time that the broker stamped on each record of `transactions` (`_timestamp`) to the first release that holds its batch. Start
the stack, switch on `bronze_ingestion`, `spark_engine` and `medallion`, send records at a rate, and then run this. Records that no release
holds yet are counted, and in no figure.
"""

import argparse
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable

from spark_jobs import control
from spark_jobs.lake.tables import BRONZE_TRANSACTIONS, RELEASES, Table
from spark_jobs.runtime.settings import Settings, read_settings
from spark_jobs.runtime.times import ALWAYS, parse_time

_RELEASES = """select last_batch, cast(min(released_at) as bigint) as at from t
    where "table" = 'bronze.transactions' group by last_batch order by last_batch"""
_RECORDS = "select _batch, cast(_timestamp as bigint) as at from t"


@dataclass(frozen=True)
class Freshness:
    """Of the released records: how many, by how many releases, and seconds at some percentiles. `waiting`: those that none holds."""

    records: int
    releases: int
    waiting: int
    seconds: dict[int, float]


def measure(settings: Settings, since: datetime) -> Freshness:
    """The freshness of the records that Kafka got since a time (UTC)."""
    releases, records = _read(settings, RELEASES, _RELEASES), _read(settings, BRONZE_TRANSACTIONS, _RECORDS)
    last, at = (releases[name].to_numpy() for name in ("last_batch", "at"))
    batch, came = (records[name].to_numpy() for name in ("_batch", "at"))
    is_new = came >= since.timestamp() * 1_000_000
    first = np.searchsorted(last, batch[is_new])  # the first release that holds the batch
    is_released = first < len(last)
    took = (at[first[is_released]] - came[is_new][is_released]) / 1_000_000
    seconds = {percent: float(np.percentile(took, percent)) for percent in (5, 50, 95, 99, 100)} if len(took) else {}
    return Freshness(len(took), len(np.unique(first[is_released])), int((~is_released).sum()), seconds)


def _read(settings: Settings, table: Table, sql: str) -> pa.Table:
    return control.query(DeltaTable(str(table.path(settings))), sql)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.freshness")
    parser.add_argument("--since", help="only records that Kafka got since then, such as 2026-03-01T12:00Z")
    options = parser.parse_args()
    found = measure(read_settings(), parse_time(options.since, "--since") if options.since else ALWAYS[0])
    print(f"{found.records:,} records in {found.releases} releases, {found.waiting:,} in none yet")
    print(", ".join(f"p{percent} {seconds:.1f} s" for percent, seconds in found.seconds.items()))


if __name__ == "__main__":
    main()
