"""New code for the live queries: which states it can continue, and how the others are rebuilt.

The words are Flink's: `last-state` continues with the states as they are, `savepoint` creates a savepoint first, `stateless` rebuilds
tables and states from gold.live_transactions.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from spark_jobs.lake import tables
from spark_jobs.live import checkpoints, fingerprint, resets, savepoints
from spark_jobs.live.fingerprint import Fingerprint
from spark_jobs.live.places import SAVEPOINT_FIRST
from spark_jobs.live.queries import BY_NAME, QUERIES
from spark_jobs.live.resets import NewState, NewTable, Reset
from spark_jobs.live.running import build
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.settings import Settings


def fingerprints(spark: SparkSession, settings: Settings) -> dict[str, Fingerprint]:
    """The fingerprint of each live query as its code is now.

    Raises LedgerError where there is no table yet that they read, SettingsError for a query in SQL that cannot be one.
    """
    if not DeltaTable.is_deltatable(str(tables.LIVE_TRANSACTIONS.path(settings))):
        raise LedgerError(f"found no {tables.LIVE_TRANSACTIONS.name}, expected that live queries have run: run live first")
    return {query.name: fingerprint.take(query, build(spark, settings, query), query.lateness(settings)) for query in QUERIES}


def recorded(settings: Settings, *, passes_over_lost: bool = False) -> dict[str, Fingerprint]:
    """The fingerprints of the states in use, by query. Raises LedgerError where one is lost, unless it is to be passed over."""
    found: dict[str, Fingerprint] = {}
    for query in QUERIES:
        try:
            generation = checkpoints.read(settings, query)
        except LedgerError:
            if not passes_over_lost:
                raise
            continue  # the query itself fails, and says so
        if generation:
            found[query.name] = generation.fingerprint
    return found


def stateless(settings: Settings, present: Mapping[str, Fingerprint], names: Sequence[str]) -> None:
    """Empty the tables of these queries and begin new states: the next start makes them from the table that they follow, all of it.

    What follows one of them is rebuilt with it.

    The caller holds the leases of the live tables, and nothing runs.
    """
    chosen = [query for query in QUERIES if query.name in names or query.follows in [BY_NAME[name].table for name in names]]
    emptied = {query.table.name: NewTable(None) for query in chosen}
    states = {query.name: NewState(checkpoints.next_number(settings, query), present[query.name]) for query in chosen}
    resets.carry_out(settings, Reset("rebuilt", emptied, states))


def keep(settings: Settings, mode: str, now: datetime) -> None:
    """Make a savepoint, if the mode asks for one."""
    if mode == SAVEPOINT_FIRST:
        savepoints.create(settings, f"upgrade-{now:%Y%m%dT%H%M%SZ}", now)
