"""A release for readers: its tables at the versions that it names, and SQL over them."""

from collections.abc import Iterator
from functools import cached_property
from string import Template

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError

from include.reader.statements import QueryError, check_query
from spark_jobs import control
from spark_jobs.releases import archive, retention
from spark_jobs.releases.releases import Release
from spark_jobs.releases.views import readable_control
from spark_jobs.runtime.settings import Settings

# Numbers with a point are decimals in a query as in the tables: amount * 1.1 stays exact.
_OPTIONS = {"datafusion.sql_parser.parse_float_as_decimal": "true", "datafusion.catalog.information_schema": "true"}
_VIEW = Template("create view $name as select * from whole where _batch <= $last_batch")


class ReleaseReader:
    """One release. Whatever is published or written later, its answers stay the same."""

    def __init__(self, settings: Settings, release: Release) -> None:
        self.settings = settings
        self.release = release

    @property
    def release_id(self) -> int:
        """The number of the release."""
        return self.release.release_id

    @property
    def tables(self) -> list[str]:
        """The names of its tables, such as `gold.daily_totals`."""
        return list(self.release.versions)

    def table(self, name: str) -> DeltaTable:
        """A table at the version that the release names; raises LedgerError when it has none of that name."""
        return archive.open_table(self.settings, self.release, name)

    def sql(self, query: str) -> pa.Table:
        """The answer to a query over the release's tables, by their names: `select * from gold.daily_totals`.

        The dialect is DataFusion's. Of bronze, only rows up to the release's last batch are seen. Amounts are exact decimals.
        Raises QueryError for what is not a query, and for one that cannot be answered.
        """
        schema, batches = self.batches(query)
        return pa.Table.from_batches(batches, schema)

    def batches(self, query: str) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """`sql` for an answer that need not fit into memory: its columns, and its rows in small batches."""
        text = check_query(query)
        try:
            found = pa.RecordBatchReader.from_stream(self._session.execute(text))
        except DeltaError as error:
            raise QueryError.of(error) from error
        schema = pa.schema([pa.field(field.name, _plain(field.type)) for field in found.schema])
        return schema, _cast(found, schema)

    @cached_property
    def _session(self) -> QueryBuilder:
        session = QueryBuilder()
        for name, value in _OPTIONS.items():
            session.execute(f"set {name} = {value}")
        for layer in sorted({name.split(".")[0] for name in self.tables}):
            session.execute(f"create schema {layer}")
        for name in self.tables:
            last_batch = self.release.last_batches.get(name)
            if last_batch is None:
                session.register(name, self.table(name))
            else:
                session.register("whole", self.table(name))
                session.execute(_VIEW.substitute(name=name, last_batch=last_batch))
                session.execute("drop table whole")  # the view holds on to it
        self._add_control(session)
        return session

    def _add_control(self, session: QueryBuilder) -> None:
        """The control tables, as they are at the first query."""
        session.execute("create schema control")
        for table in readable_control(self.settings):
            control.register(session, table.name, table.open(self.settings), table)


def open_release(settings: Settings, release_id: int | None = None) -> ReleaseReader:
    """The newest release, or one by its number; raises LedgerError when there is none, or it has expired."""
    return ReleaseReader(settings, retention.find_offered(settings, release_id))


def _cast(found: pa.RecordBatchReader, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The batches; what fails while rows are computed (a division by zero, a file that is gone) becomes a QueryError."""
    try:
        for batch in found:
            yield batch.cast(schema)
    except (pa.ArrowException, OSError, DeltaError) as error:
        raise QueryError.of(error) from error


def _plain(kind: pa.DataType) -> pa.DataType:
    """A type without views, which pyarrow can neither filter nor join."""
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_list(kind):
        return pa.list_(_plain(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _plain(field.type)) for field in kind])
    return kind
