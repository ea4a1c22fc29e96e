"""What tests of the live queries share: a session with their settings, one pass of the live application, and what it left."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs.lake import sinks, tables
from spark_jobs.live import checkpoints, fingerprint, queries as live_queries, resets, savepoints, upgrade
from spark_jobs.live.declaration import LiveQuery
from spark_jobs.live.queries import BY_NAME, QUERIES, switched_on
from spark_jobs.live.running import build, stages
from spark_jobs.runtime.session import state_conf
from spark_jobs.runtime.settings import Settings
from spark_jobs.runtime.times import to_micros
from spark_jobs.service import run_loop
from tests.support import lake
from tests.support.frames import at
from tests.support.rows import Record, message

DAILY, PAIRS = BY_NAME["daily_totals"], BY_NAME["debit_credit_pairs"]


@contextmanager
def live_session(spark: SparkSession) -> Iterator[SparkSession]:
    """The session of the tests, with the settings of the live queries; one partition of state. Queries are polled often."""
    settings = state_conf() | {"spark.sql.shuffle.partitions": "1"}
    with sinks.configured(spark, settings), pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_loop, "_POLL_SECONDS", 0.05)
        yield spark


@contextmanager
def adding(queries: Sequence[LiveQuery], *, only: bool = False) -> Iterator[None]:
    """These queries, of tables in SQL, are among the live queries of the product, or its `only` ones."""
    added = tuple(query.table for query in queries)
    with pytest.MonkeyPatch.context() as patch:
        every = tuple(queries) if only else (*QUERIES, *queries)
        for module in (live_queries, checkpoints, savepoints, upgrade):
            patch.setattr(module, "QUERIES", every)
        for module in (tables, savepoints, resets):
            patch.setattr(module, "LIVE", (*tables.LIVE, *added))
        patch.setattr(tables, "LIVE_IN_SQL", added)
        for query in queries:
            patch.setitem(BY_NAME, query.name, query)
            patch.setitem(tables.LIVE_RESULTS, query.table, tables.LIVE_TRANSACTIONS)
        yield


def run_live(spark: SparkSession, settings: Settings, queries: Iterable[LiveQuery] | None = None) -> None:
    """What `run live --available-now` does, of some queries or of all that are switched on."""
    tables.ensure_tables(settings, (*tables.BRONZE, tables.SILVER_ACCOUNTS, *tables.LIVE, *tables.CONTROL))
    for stage in stages(spark, settings, switched_on(settings) if queries is None else queries, available_now=True):
        assert run_loop.run(stage, lambda _: None, lambda: False)
        for query in stage:
            assert query.error is None, query.error
        assert all(query.is_drained and not query.is_behind for query in stage)  # a stop has nothing to wait for


def arrive(settings: Settings, batch: int, *rows: tuple[str, str] | tuple[str, str, dict[str, Any]]) -> None:
    """A bronze batch of valid transactions: (id, event time), and what else differs."""
    lake.arrive(settings, "transactions", batch, [record(*row) for row in rows])


def record(name: str, time: str, fields: Mapping[str, Any] = MappingProxyType({})) -> Record:
    """A valid transaction of an event time (UTC)."""
    return message("transactions", transactionId=name, eventTime=to_micros(at(time)) // 1000, **fields)


def fingerprint_of(live: SparkSession, settings: Settings, query: LiveQuery, lateness: int = 10) -> fingerprint.Fingerprint:
    """The fingerprint of a query, of this test or of the product."""
    return fingerprint.take(query, build(live, settings, query), lateness)


def rows(settings: Settings) -> dict[str, Counter[str]]:
    """All rows of all live tables, by table."""
    return {table.name: Counter(map(str, lake.rows_of(settings, table))) for table in tables.LIVE}


def written(settings: Settings, query: LiveQuery) -> Counter[tuple[str, int, str]]:
    """Day, transactions and amount of each row of a table of totals."""
    found = lake.rows_of(settings, query.table)
    return Counter((f"{row['window_start']:%Y-%m-%d}", row["transactions"], str(row["amount"])) for row in found)
