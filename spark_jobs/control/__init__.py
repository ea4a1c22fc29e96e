"""The control tables: what was processed, judged and released. Small, and read and written without Spark."""

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from string import Template
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from spark_jobs.lake import leases, schema
from spark_jobs.lake.ddl import parse_columns
from spark_jobs.lake.tables import BATCHES, BRONZE, DECISIONS, SILVER_TRANSACTIONS, Table, ensure_tables
from spark_jobs.lake.txn import Txn, commit_properties
from spark_jobs.runtime.settings import Settings

_LONG_AGO, _NEVER = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
ROLLED_BACK = "rolled back"  # the transaction identifier of a roll-back; its number is the generation that begins with it
# control.batches grows with every run: SQL finds the few rows that are wanted, and the others do not become Python objects.
_RUNS = Template("select * from t where job = '$job' and \"table\" = '$table' and last_batch > $after order by last_batch$newest")
_LAST = Template('select "table", max(last_batch) as last from t where job = \'$job\' group by "table"')
_NEWEST_OF_GOLD = Template("""
with numbered as (
  select *, row_number() over (partition by "table" order by finished_at desc nulls last, last_batch desc nulls last) as _number
  from t where job = 'gold' and _read_versions <> ''
    and coalesce(finished_at <= arrow_cast('$until', 'Timestamp(Microsecond, Some("UTC"))'), true)
)
select * from numbered where _number = 1
""")
_WITH_NULLS = Template("create view $name as select *, $nulls from ${name}_found")
# A null of these types in DataFusion's words; the others have Spark's names there, too.
_NULLS = {
    "string": "cast(null as varchar)",
    "binary": "cast(null as bytea)",
    "timestamp": "arrow_cast(null, 'Timestamp(Microsecond, Some(\"UTC\"))')",
    "array": "null",
}


def read(settings: Settings, table: Table) -> pa.Table:
    """All rows of a table, in no particular order; no rows where the table does not exist yet."""
    if not table.exists(settings):
        return _schema(table).empty_table()
    found = query(table.open(settings), "select * from t", table)
    return found.select(table.columns).cast(_schema(table))


def select(settings: Settings, table: Table, sql: str) -> list[dict[str, Any]]:
    """The rows that SQL gives of a table, as `query`; none where the table does not exist yet."""
    return query(table.open(settings), sql, table).to_pylist() if table.exists(settings) else []


def query(table: DeltaTable, sql: str, declared: Table | None = None) -> pa.Table:
    """What SQL (DataFusion) says of a table, which it calls `t`; text comes as string views. See `register` for `declared`.

    Not by a PyArrow data set: after one, a process sometimes aborts when it exits (3 of 200 times on a busy machine).
    """
    return pa.table(register(QueryBuilder(), "t", table, declared).execute(sql).read_all())


def register(session: QueryBuilder, name: str, table: DeltaTable, declared: Table | None) -> QueryBuilder:
    """Give a session a table, with all columns that it is declared with: those that one of an older warehouse lacks are null."""
    lacking = schema.lacking(declared, table) if declared else []
    session.register(f"{name}_found" if lacking else name, table)
    if lacking and declared:
        kinds = {column: kind.partition("<")[0] for column, kind, _ in parse_columns(declared.ddl)}
        nulls = ", ".join(f'{_NULLS.get(kinds[column], f"cast(null as {kinds[column]})")} as "{column}"' for column in lacking)
        session.execute(_WITH_NULLS.substitute(name=name, nulls=nulls))
    return session


def value(table: DeltaTable, sql: str, declared: Table | None = None) -> Any:
    """`query` for one value."""
    return query(table, sql, declared)[0][0].as_py()


def count(table: DeltaTable) -> int:
    """The rows of a table. Its own `count` includes those that are marked as removed in files that stay."""
    return int(value(table, "select count(*) from t"))


def append(settings: Settings, table: Table, rows: Iterable[dict[str, Any]] | pa.Table, once: Txn | None = None) -> None:
    """Append rows in one commit, under the table's lease.

    `once` makes a repetition a no-op, as Delta's transaction identifiers do.
    """
    with leases.hold(settings, [table], owner=f"append to {table.name}"):
        append_under_lease(settings, table, rows, once)


def append_under_lease(settings: Settings, table: Table, rows: Iterable[dict[str, Any]] | pa.Table, once: Txn | None = None) -> None:
    """`append` for a caller that holds the table's lease."""
    ensure_tables(settings, [table], has_lease=True)
    target = table.open_to_write(settings)
    done = target.transaction_version(once.application) if once else None
    if once and done is not None and done >= once.version:
        return
    properties = commit_properties(settings, table, transactions=[once] if once else [])
    data = rows.cast(_schema(table)) if isinstance(rows, pa.Table) else pa.Table.from_pylist(list(rows), schema=_schema(table))
    write_deltalake(target, data, mode="append", commit_properties=properties)


def replace_under_lease(settings: Settings, table: Table, rows: Iterable[dict[str, Any]]) -> None:
    """Put these rows in place of all that a table holds, in one commit, for a caller that holds its lease."""
    data = pa.Table.from_pylist(list(rows), schema=_schema(table))
    write_deltalake(str(table.path(settings)), data, mode="overwrite", commit_properties=commit_properties(settings, table))


def generation(settings: Settings) -> int:
    """How often silver and gold were set back to a release, plus one. It rises with every roll-back and never falls.

    It changes only while the leases of silver, gold and the releases are held all together (decisions.py): whoever holds one of
    them finds the same number each time.
    """
    return max((int(row["generation"] or 1) for row in read(settings, DECISIONS).to_pylist()), default=1)


def is_rolled_back(settings: Settings) -> bool:
    """Whether the roll-back that was decided last is carried out, or none ever was."""
    number = generation(settings)
    return number == 1 or (DECISIONS.open(settings).transaction_version(ROLLED_BACK) or 0) >= number


def application(settings: Settings, name: str) -> str:
    """The transaction identifier (txnAppId) under which a job writes: `silver`, and `silver/2` after the first roll-back.

    A table that was set back keeps the old identifier with its old, higher number, so writes under it would be skipped silently.
    """
    number = generation(settings)
    return name if number == 1 else f"{name}/{number}"


def following(settings: Settings, source: Table) -> str:
    """The transaction identifier under which a gold table keeps how far it follows a silver table."""
    gold = application(settings, "gold")
    return gold if source == SILVER_TRANSACTIONS else f"{gold} {source.name}"


def batches(settings: Settings, job: str, table: str, after: int = -1) -> list[dict[str, Any]]:
    """The rows of control.batches of a job and table whose last batch is higher than `after`, in the order of their batches."""
    return select(settings, BATCHES, _RUNS.substitute(job=job, table=table, after=after, newest=""))


def newest_run(settings: Settings, job: str, table: str) -> dict[str, Any] | None:
    """The last one of `batches`; None where there is none."""
    found = select(settings, BATCHES, _RUNS.substitute(job=job, table=table, after=-1, newest=" desc limit 1"))
    return found[0] if found else None


def versions_read_by_gold(settings: Settings, upto: datetime | None = None) -> dict[str, int]:
    """The versions of silver's tables that the newest gold run (that ended by `upto`) read, by name; none where there was none."""
    rows = newest_gold_runs(settings, upto)
    return dict(json.loads(rows[-1]["_read_versions"])) if rows else {}


def newest_gold_runs(settings: Settings, upto: datetime | None = None) -> list[dict[str, Any]]:
    """Of each gold table the newest row of control.batches (that ended by `upto`) which names the versions of silver that it read.

    In the order in which they ended.
    """
    until = (upto or _NEVER).astimezone(UTC).isoformat()
    return sorted(select(settings, BATCHES, _NEWEST_OF_GOLD.substitute(until=until)), key=when_it_ended)


def when_it_ended(row: Mapping[str, Any]) -> tuple[datetime, int]:
    """By which gold's rows of control.batches are in order: each run ends later than those before, by whatever clock."""
    return row["finished_at"] or _LONG_AGO, row["last_batch"] or 0


def later_than(times: Iterable[datetime | None], now: datetime) -> datetime:
    """`now`, or a microsecond after the latest of these times: what is recorded keeps its order when a clock is set back."""
    return max([now, *(time + timedelta(microseconds=1) for time in times if time is not None)])


def last_batch(settings: Settings, job: str, table: str) -> int:
    """The last bronze batch that a job has processed for a table; 0 when there was none."""
    return last_batches(settings, job).get(table, 0)


def last_batches(settings: Settings, job: str) -> dict[str, int]:
    """The last bronze batch that a job has processed for each table that it has processed one for."""
    return {row["table"]: row["last"] for row in select(settings, BATCHES, _LAST.substitute(job=job))}


def silver_batch(settings: Settings, topic: str) -> int:
    """The last bronze batch of a topic that silver has taken whole; 0 when there was none."""
    return last_batch(settings, "silver", f"silver.{topic}")


def silver_batches(settings: Settings) -> dict[str, int]:
    """By topic, the last bronze batch that silver has taken whole; 0 when there was none."""
    last = last_batches(settings, "silver")
    return {table.topic: last.get(f"silver.{table.topic}", 0) for table in BRONZE}


def _schema(table: Table) -> pa.Schema:
    return pa.schema(table.delta_schema().to_arrow())
