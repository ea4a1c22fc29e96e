"""SQL over exactly the rows that a gate judges: those of some bronze batches, or of them the records that a backfill has rebuilt.

Reads Delta without Spark.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from string import Template

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from spark_jobs import control
from spark_jobs.lake.tables import BATCHES, HOLES, LAYERS, Table
from spark_jobs.runtime.settings import Settings

_BELOW = {"bronze": ("bronze",), "silver": ("silver", "bronze"), "gold": ("gold", "silver")}
_CONTROL = {table.name.replace(".", "_"): table for table in (BATCHES, HOLES)}  # that a suite may name
_VIEW = Template("create view $name as select * from $raw where $condition")
_REBUILT = Template(
    "create view $name as select r.* from $raw r left semi join rebuilt_records p "
    "on r._topic = p._topic and r._partition = p._partition and r._offset = p._offset where $condition "
    "union all select * from $raw where _batch is null"
)
_JUDGED = Template(
    "create view judged as select $first as first_batch, $last as last_batch, "
    "arrow_cast('$now', 'Timestamp(Microsecond, Some(\"UTC\"))') as judged_at, $freshness as freshness_seconds"
)


@dataclass(frozen=True)
class Written:
    """Rows to judge: those of bronze batches first..last in one table at a version. last_batch 0: the job never had a batch.

    `rebuilt` lists the coordinates of records of these batches: then no others are judged.
    """

    table: Table
    version: int
    first_batch: int
    last_batch: int
    rebuilt: Path | None = None


def open_query(
    settings: Settings, written: Written, versions: Mapping[str, int], now: datetime, instead: Mapping[str, Path] | None = None
) -> Callable[[str], pa.Table]:
    """A function that answers SQL (DataFusion). The relations it knows are described in expectations/suites.py.

    `versions` are those of the tables of the judged layer, by name; those of the layer below may be among them, or are read as
    they are now. `now` is the time of the judgement. `instead` gives the folders of tables that are read in place of the stored ones.
    """
    builder = QueryBuilder()
    layers = _BELOW[written.table.layer]
    tables = {table.name.replace(".", "_"): table for layer in layers for table in LAYERS[layer]}
    ready: set[str] = set()

    def add_view(name: str, raw: str, condition: str, view: Template = _VIEW) -> None:
        builder.execute(view.substitute(name=name, raw=raw, condition=condition))

    def prepare(name: str) -> None:
        """Register a table when the first query names it: opening one costs more than counting its rows."""
        if name in ready:
            return
        table = tables[name]
        folder = (instead or {}).get(table.name, table.path(settings))
        declared = None if table == written.table else table  # a column that the judged table lacks closes its gate
        control.register(builder, f"raw_{name}", DeltaTable(str(folder), version=versions.get(table.name)), declared)
        follows_batches = "_batch" in table.columns and table.topic == written.table.topic
        upto, within, view = _conditions(written) if follows_batches else ("true", "true", _VIEW)
        add_view(name, f"raw_{name}", upto)
        add_view(f"written_{name}", f"raw_{name}", within, view)
        ready.add(name)

    own = written.table.name.replace(".", "_")
    if written.rebuilt:
        builder.register("rebuilt_records", DeltaTable(str(written.rebuilt)))
    judged = {"first": written.first_batch, "last": written.last_batch, "now": now.astimezone(UTC).isoformat()}
    builder.execute(_JUDGED.substitute(judged, freshness=settings.freshness_seconds))

    def query(sql: str) -> pa.Table:
        words = set(re.findall(r"\w+", sql))
        for name in tables:
            if {name, f"written_{name}"} & words or (name == own and "written" in words):
                prepare(name)
        if "written" in words and "written" not in ready:
            add_view("written", f"written_{own}", "true")
            ready.add("written")
        for name in (words & _CONTROL.keys()) - ready:
            control.register(builder, name, _CONTROL[name].open(settings), _CONTROL[name])
            ready.add(name)
        return pa.table(builder.execute(sql).read_all())

    return query


def _conditions(written: Written) -> tuple[str, str, Template]:
    """Of a table that follows the judged batches: which rows there are, which of them are judged, and by which view.

    A row without a batch is never left out: some expectation will speak of it.
    """
    upto = f"_batch <= {written.last_batch} or _batch is null"
    if written.rebuilt:
        return upto, f"_batch <= {written.last_batch}", _REBUILT
    return upto, f"_batch between {written.first_batch} and {written.last_batch} or _batch is null", _VIEW
