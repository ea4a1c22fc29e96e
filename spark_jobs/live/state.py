"""The state of a live query as its newest batch left it, read from the checkpoint by Spark's state data sources. Writes nothing there.

A query may run meanwhile: Spark keeps the state of its last 100 batches, and a newer one is read when it moved on too far.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Row, SparkSession, functions as F
from pyspark.sql.types import StructType

from spark_jobs.lake import sinks
from spark_jobs.live import checkpoints
from spark_jobs.live.checkpoints import Checkpoint
from spark_jobs.live.declaration import LiveQuery
from spark_jobs.runtime import storage
from spark_jobs.runtime.errors import LedgerError, line_with_cause
from spark_jobs.runtime.settings import Settings
from spark_jobs.runtime.times import from_micros, to_text

T = TypeVar("T")
Session = Callable[[], SparkSession]
# Key columns that Spark names by itself, in gold's words.
_NAMES = {"debit_credit_pairs": {"field0": "customer_id"}}
_OF_EVERY_QUERY = {"sessionStartTime": "session_start"}
_UNREADABLE = (PySparkException, Py4JJavaError, OSError, ValueError)


@dataclass(frozen=True)
class Store:
    """A state store of an operator, by Spark's names; of a transformWithState each state variable, which `name` is then."""

    operator_id: int
    operator: str
    name: str
    partitions: int
    is_variable: bool = False


@dataclass(frozen=True)
class State:
    """The state of a query after a batch. `watermark`: the one by which that batch forgot, None for none yet."""

    generation: Checkpoint
    batch: int
    watermark: datetime | None
    stores: tuple[Store, ...]

    def __str__(self) -> str:
        watermark = to_text(self.watermark) if self.watermark else "none yet"
        return f"{self.generation.query.name}: generation {self.generation.number}, batch {self.batch}, watermark {watermark}"


def read_newest(session: Session, settings: Settings, query: LiveQuery, use: Callable[[SparkSession, State], T]) -> T | None:
    """What `use` makes of a query's newest state; None, and no session is asked for, where no batch of it has ended.

    `use` is called again when its files were removed meanwhile. Raises LedgerError when it cannot be read then either, or when the
    query's table knows of a checkpoint that is gone.
    """
    for is_last in (False, True):
        generation = checkpoints.read(settings, query)
        if generation is None or (batch := generation.ended) < 0:
            return None
        try:
            spark = session()
            return use(spark, _open(spark, generation, batch))
        except _UNREADABLE as error:
            if is_last:
                raise LedgerError(
                    f"the state of live {query.name} cannot be read: {line_with_cause(error)}; expected the files of its last batches: "
                    "run it again, or see with run live_control status how the query does"
                ) from error
    return None


def entries(spark: SparkSession, state: State, store: Store) -> DataFrame:
    """What a state store holds: its key in columns, `value` as Spark has it, and partition_id."""
    conf = {
        # Offset logs of version 2 lack it, and the data source takes it from the session.
        "spark.sql.streaming.internal.stateStore.partitions": str(store.partitions),
        # Reports go to an endpoint that only a session with queries has.
        "spark.sql.streaming.stateStore.coordinatorReportSnapshotUploadLag": "false",
    }
    which: dict[str, str | int] = {"batchId": state.batch, "operatorId": store.operator_id}
    which["stateVarName" if store.is_variable else "storeName"] = store.name
    with sinks.configured(spark, conf):
        frame = spark.read.format("statestore").options(**which).load(str(state.generation.folder))
    return frame.select(
        *_flat(frame.schema["key"].dataType, _OF_EVERY_QUERY | _NAMES.get(state.generation.query.name, {})), "value", "partition_id"
    )


def keys(frame: DataFrame) -> list[str]:
    """The key columns of `entries`."""
    return [name for name in frame.columns if name not in ("value", "partition_id")]


def bytes_on_disk(state: State, store: Store) -> int:
    """The bytes of the files of a state store, of all batches that are kept. What is removed meanwhile does not count."""
    folder = state.generation.folder / "state" / str(store.operator_id)
    total = 0
    for number in range(store.partitions):
        partition = folder / str(number)
        total += sum(storage.files_below(partition if store.is_variable or store.name == "default" else partition / store.name).values())
    return total


def _open(spark: SparkSession, generation: Checkpoint, batch: int) -> State:
    planned = json.loads(generation.plan(batch)[1])
    watermark = from_micros(planned["batchWatermarkMs"] * 1000) if planned["batchWatermarkMs"] else None
    found = spark.read.format("state-metadata").load(str(generation.folder)).collect()
    stores = [store for row in found for store in _stores(row)]
    return State(generation, batch, watermark, tuple(sorted(stores, key=lambda store: (store.operator_id, store.name))))


def _stores(row: Row) -> Iterator[Store]:
    """Those of a line of Spark's state-metadata; timers, which Spark keeps beside the variables, are left out."""
    variables = json.loads(row["operatorProperties"] or "{}").get("stateVariables", [])
    names = [each["stateName"] for each in variables if each["stateVariableType"] != "TimerState"] or [row["stateStoreName"]]
    for name in names:
        yield Store(row["operatorId"], row["operatorName"], name, row["numPartitions"], is_variable=bool(variables))


def _flat(key: object, names: dict[str, str]) -> Iterator[Column]:
    """The columns of a key; those of a window as window_start and window_end."""
    if not isinstance(key, StructType):
        raise LedgerError(f"found a state whose key is {key}, expected a struct: the format of Spark's state has changed")
    for field in key:
        if isinstance(field.dataType, StructType):
            yield from (F.col(f"key.{field.name}.{part}").alias(f"{field.name}_{part}") for part in field.dataType.names)
        else:
            yield F.col(f"key.{field.name}").alias(names.get(field.name, field.name))
