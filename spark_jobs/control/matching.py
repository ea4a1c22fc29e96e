"""Few rows of a table, found in one pass over it without Spark, which plans such a read for longer than it takes."""

from collections.abc import Callable, Sequence
from string import Template

import pyarrow as pa
from deltalake import QueryBuilder

from spark_jobs import control
from spark_jobs.lake.tables import Table
from spark_jobs.runtime.settings import Settings

_SELECT = Template("select $columns from t where $where")
_ALL = "true"  # the condition that every row meets
_AT_ONCE = {"datafusion.execution.batch_size": "65536"}
_MOST_BYTES = 64 * 2**20


def find_rows(
    settings: Settings,
    table: Table,
    columns: Sequence[str],
    is_wanted: Callable[[pa.Table], pa.Array] | None,
    where: str = _ALL,
    *,
    version: int | None = None,
    most: int | None = None,
) -> pa.Table | None:
    """These columns of the rows that satisfy a condition in SQL (DataFusion), and for which `is_wanted`, asked part by part, gives true.

    None where they are too many to be held in memory, or more than `most`. No more than a part of the table is in memory at a time, and
    nothing is read of a table that is wanted whole and has more rows by its log.
    """
    delta = table.open(settings, version=version)
    if most is not None and is_wanted is None and where == _ALL:
        recorded = pa.table(delta.get_add_actions())["num_records"].to_pylist()
        if sum(count or 0 for count in recorded) > most:
            return None
    declared = pa.schema(table.delta_schema().to_arrow())
    schema = pa.schema([declared.field(name) for name in columns])
    session = control.register(QueryBuilder(_AT_ONCE), "t", delta, table)
    parts, size, count = [schema.empty_table()], 0, 0
    for batch in session.execute(_SELECT.substitute(columns=", ".join(f'"{name}"' for name in columns), where=where)):
        part = pa.Table.from_batches([pa.record_batch(batch)]).cast(schema)
        part = part.filter(is_wanted(part)) if is_wanted else part
        parts.append(part)
        size, count = size + part.nbytes, count + part.num_rows
        if size > _MOST_BYTES or (most is not None and count > most):
            return None
    return pa.concat_tables(parts)
