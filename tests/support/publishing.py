"""Releases without gates: verdicts that all pass, and a day on which a release is published."""

from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any

from deltalake import DeltaTable

from spark_jobs import control
from spark_jobs.lake.tables import LAYERS, QUALITY_RESULTS, RELEASES, SILVER_TRANSACTIONS
from spark_jobs.releases import releases
from spark_jobs.runtime.settings import Settings
from tests.support.aging import follow
from tests.support.warehouse import at, bronze, daily, run_of, transaction, write

EVERY_TABLE = [table for layer in LAYERS.values() for table in layer]


def pass_gates(settings: Settings, last_batch: int = 2, closed: str | None = None, layers: Collection[str] = tuple(LAYERS)) -> None:
    """A verdict on every table of these layers as it is now, passed but for a closed one. The last batch of all but transactions is 1."""
    common = {"run_id": "r", "evaluated": 1, "failed": 0, "_judged_at": datetime.now(UTC), "_first_batch": 1}
    rows = [
        common
        | {
            "layer": table.layer,
            "table": table.name,
            "suite": table.name,
            "success": table.layer != closed,
            "version": DeltaTable(str(table.path(settings))).version(),
            "_last_batch": last_batch if table.topic == "transactions" else 1,
        }
        for table in EVERY_TABLE
        if table.layer in layers
    ]
    control.append(settings, QUALITY_RESULTS, rows)


def publish(settings: Settings, last_batch: int = 2) -> int:
    """Release every table as it is now."""
    pass_gates(settings, last_batch)
    return releases.publish(settings)


def one_more(settings: Settings, batch: int) -> None:
    """A batch of one debit of 1.00, at 12 o'clock: bronze and silver, not gold."""
    place = at(1, batch, batch)
    write(settings, {"bronze.transactions": [bronze(place, b"T", b"{}")]})
    write(settings, {"silver.transactions": [transaction(100 + batch, place, "Debit", "1.00", who=1, hour=12)]})
    write(settings, {"control.batches": [run_of("silver", "silver.transactions", batch, batch, input=1, output=1)]})


def gold_follows(settings: Settings, batch: int) -> None:
    """Gold of all batches up to this one, as far as tests look at it: daily totals."""
    more = batch - 2
    credits_, debits = daily("Credit", 2, "9007199254741093.10"), daily("Debit", 2 + more, f"{40 + more}.01")
    write(settings, {"gold.daily_totals": [credits_, debits]}, mode="overwrite")
    follow(settings, DeltaTable(str(SILVER_TRANSACTIONS.path(settings))).version())


def released_on(settings: Settings, *days: datetime, first: int = 1) -> None:
    """Releases with the numbers from `first` on, published on these days, all of the tables as they are now."""
    for number, day in enumerate(days, first):
        rows: list[dict[str, Any]] = []
        for table in EVERY_TABLE:
            delta = DeltaTable(str(table.path(settings)))
            last_batch = (2 if table.name == "bronze.transactions" else 1) if table.layer == "bronze" else None
            rows.append({"release_id": number, "released_at": day, "table": table.name, "version": delta.version(), "rows": delta.count()})
            rows[-1]["last_batch"] = last_batch
        control.append(settings, RELEASES, rows)
