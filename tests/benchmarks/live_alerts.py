"""How many rows a second the query `alerts` takes, whose state is Python's: measured on rows that are made up, in a folder of its own.

    python -m tests.benchmarks.live_alerts [--rows N] [--accounts N] [--commits N]

Rows are written to gold.live_transactions in so many commits. The query takes all of them at once, then one more commit of 2,500 rows, as
many as come in its five seconds at 500 rows a second.
"""

import argparse
import os
import random
import sys
import tempfile
import time
from datetime import datetime, timedelta
from decimal import Decimal

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from spark_jobs import control
from spark_jobs.lake.tables import LIVE, LIVE_ALERTS, LIVE_TRANSACTIONS, ensure_tables
from spark_jobs.live import checkpoints
from spark_jobs.live.products.alerts import QUERY
from spark_jobs.live.running import stages
from spark_jobs.runtime.session import live_conf, start_session
from spark_jobs.runtime.settings import Settings, read_settings
from spark_jobs.service import run_loop
from tests.support.frames import at

SMALL = 2_500
KINDS = ("Debit", "Debit", "Credit")
BEGIN = at("2024-01-01")


def main() -> int:
    """Measure, and print a line for each of the two."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.live_alerts", description=(__doc__ or "").splitlines()[0])
    for name, default in (("rows", 100_000), ("accounts", 4_500), ("commits", 10)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        settings = read_settings({"LEDGER_HOME": home})
        ensure_tables(settings, LIVE)
        chance = random.Random(1)
        for batch in range(options.commits):
            write(settings, chance, batch + 1, options.rows // options.commits, options.accounts)
        spark = start_session(settings, "benchmark", live_conf())
        for name, count in (("all at once", options.rows), ("one more commit", SMALL)):
            if count == SMALL:
                write(settings, chance, options.commits + 1, SMALL, options.accounts)
            started = time.monotonic()
            (query,) = stages(spark, settings, [QUERY], available_now=True)[1]
            assert run_loop.run([query], lambda _: None, lambda: False), query.error
            seconds = time.monotonic() - started
            sys.stdout.write(f"{name}: {count} rows in {seconds:.1f} s, {count / seconds:.0f} a second (load {os.getloadavg()[0]:.1f})\n")
        sys.stdout.write(f"alerts: {control.count(DeltaTable(str(LIVE_ALERTS.path(settings))))}\n")
        spark.stop()
    return 0


def write(settings: Settings, chance: random.Random, batch: int, count: int, accounts: int) -> None:
    """A commit of rows, half an hour of events, as the intake would write them."""
    begin: datetime = BEGIN + timedelta(minutes=30 * batch)
    rows = [
        {
            "transaction_id": f"T{batch}-{number}",
            "account_id": f"A{chance.randrange(accounts):08}",
            "customer_id": "C00000001",
            "event_at": (moment := begin + timedelta(milliseconds=1_800_000 * number // count)),
            "event_on": moment.date(),
            "type": chance.choice(KINDS),
            "amount": Decimal(chance.randrange(100, 2_000_000)) / 100,
            "balance": Decimal("1.00"),
            "_topic": "transactions",
            "_partition": number % 5,
            "_offset": batch * count + number,
            "_batch": batch,
        }
        for number in range(count)
    ]
    schema = pa.schema(LIVE_TRANSACTIONS.delta_schema().to_arrow())
    taken = CommitProperties(app_transactions=[Transaction(checkpoints.intake_application(settings), batch)])
    write_deltalake(
        DeltaTable(str(LIVE_TRANSACTIONS.path(settings))),
        pa.Table.from_pylist([{name: row.get(name) for name in schema.names} for row in rows], schema),
        mode="append",
        commit_properties=taken,
    )


if __name__ == "__main__":
    sys.exit(main())
