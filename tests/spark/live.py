"""What tests of the live queries share: a session with their settings, and one pass of the live application."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

from pyspark.sql import SparkSession

from spark_jobs import lifetime, sinks, tables
from spark_jobs.session import state_conf
from spark_jobs.settings import Settings
from spark_jobs.streaming.queries import QUERIES, LiveQuery
from spark_jobs.streaming.running import Intake, Live
from spark_jobs.times import to_micros
from tests.frames import at
from tests.spark import lake
from tests.spark.rows import Record, message


@contextmanager
def live_session(spark: SparkSession) -> Iterator[SparkSession]:
    """The session of the tests, with the settings of the live queries; one partition of state."""
    with sinks.configured(spark, state_conf() | {"spark.sql.shuffle.partitions": "1"}):
        yield spark


def run_live(spark: SparkSession, settings: Settings, queries: Iterable[LiveQuery] = QUERIES) -> None:
    """What `run live --available-now` does, of some queries."""
    tables.ensure_tables(settings, (*tables.BRONZE, *tables.LIVE, *tables.CONTROL))
    intake = Intake(spark, settings, available_now=True)
    assert lifetime.live([intake], lambda _: None, lambda: False)
    assert intake.error is None, intake.error
    lives = [Live(spark, settings, query, intake, available_now=True) for query in queries]
    assert not lives or lifetime.live(lives, lambda _: None, lambda: False)
    for query in lives:
        assert query.error is None, query.error


def arrive(settings: Settings, batch: int, *rows: tuple[str, str] | tuple[str, str, dict[str, Any]]) -> None:
    """A bronze batch of valid transactions: (id, event time), and what else differs."""
    lake.arrive(settings, "transactions", batch, [record(*row) for row in rows])


def record(name: str, time: str, fields: Mapping[str, Any] = MappingProxyType({})) -> Record:
    """A valid transaction of an event time (UTC)."""
    return message("transactions", transactionId=name, eventTime=to_micros(at(time)) // 1000, **fields)
