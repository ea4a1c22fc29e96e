"""Checkpoints of live queries, each with its generation and the fingerprint of the code that its state is of (generation.json).

A generation has transaction identifiers of its own in the table that the query writes, so that the first batches of a new checkpoint
are not taken for those of an old one.
"""

from collections.abc import Callable
from dataclasses import dataclass

from deltalake import DeltaTable
from pyspark.sql import DataFrame

from spark_jobs.lake.tables import LIVE_TRANSACTIONS, Table
from spark_jobs.lake.txn import applied
from spark_jobs.live import fingerprint, places
from spark_jobs.live.declaration import LiveQuery
from spark_jobs.live.fingerprint import Fingerprint
from spark_jobs.live.queries import INTAKE, QUERIES
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.settings import Settings
from spark_jobs.service import checkpoints as files
from spark_jobs.service.checkpoints import Generation


@dataclass(frozen=True)
class Checkpoint(Generation):
    """The checkpoint of a query that is in use."""

    query: LiveQuery
    fingerprint: Fingerprint

    @property
    def number(self) -> int:
        """Of the generation."""
        return int(self.name)

    @property
    def application(self) -> str:
        """The transaction identifier of its writes."""
        return application(self.query, self.number)


def application(query: LiveQuery, number: int) -> str:
    """The transaction identifier of the writes of a generation."""
    return f"live {query.name}/{number}"


def read(settings: Settings, query: LiveQuery) -> Checkpoint | None:
    """The generation in use, None where the query never ran. Raises LedgerError when its table knows one, and the checkpoint is gone."""
    folder = places.root(settings) / query.name
    table = _delta(settings, query.table)
    try:
        if (facts := files.read_facts(folder)) is None:
            if table is not None and table.file_uris():
                raise _lost(query, f"{folder / files.FILE} is missing")
            return None
        found = Checkpoint(folder, str(int(facts["number"])), query, facts["fingerprint"])
    except (ValueError, KeyError, TypeError) as error:
        raise _lost(query, f"{folder / files.FILE} cannot be read ({error})") from None
    written = table.transaction_version(found.application) if table is not None else None
    if written is not None and found.planned < written:
        raise _lost(query, f"{found.folder} reaches to batch {found.planned}, {query.table.name} has batch {written}")
    return found


def refuse_ahead(settings: Settings) -> None:
    """Raise LedgerError where a query has planned, or taken, commits that a table which it reads does not have.

    So it is when the tables were restored from an older copy and the checkpoints were not: what the intake writes next would count
    as taken. Call it before the intake starts. A state that is lost is passed over: its query fails, and says so.
    """
    for query, table in ((each, table) for each in QUERIES for table in (each.follows, each.beside) if table):
        head = table.open(settings).version()
        try:
            generation = read(settings, query)
            reached = places.planned(generation, beside=table != query.follows) if generation else 0
        except (LedgerError, OSError, ValueError):
            continue
        if reached > head + 1:
            raise LedgerError(
                f"live {query.name}: the state is newer than the tables: found {table.name} at version {head}, and a state "
                f"that has taken version {reached - 1}; expected tables and checkpoints of one time: restore the checkpoints of "
                "that time, restore a savepoint (run savepoint restore), or rebuild the table: "
                f"run upgrade --mode stateless --query {query.name}"
            )


def open_checkpoint(settings: Settings, query: LiveQuery, frame: DataFrame) -> Checkpoint:
    """The generation to continue, or the first; its fingerprint is that of the present code, whose `frame` it is.

    Raises SettingsError, and writes nothing, where the state is not one that the present code can continue.
    """
    generation, now = read(settings, query), fingerprint.take(query, frame, query.lateness(settings))
    if generation:
        fingerprint.check({query.name: now}, {query.name: generation.fingerprint})
    if generation is None:
        return begin(settings, query, next_number(settings, query), now)
    return generation if generation.fingerprint == now else begin(settings, query, generation.number, now)


def intake_application(settings: Settings) -> str:
    """The transaction identifier of the intake: another one after each restored savepoint, which the table names."""
    return _intake(_newest_intake(settings))


def next_intake_application(settings: Settings) -> str:
    """The identifier with which the intake continues after a savepoint is restored."""
    return _intake(_newest_intake(settings) + 1)


def intake_batch(settings: Settings) -> int:
    """The last batch of bronze that the intake has taken; 0 for none."""
    return applied(settings, LIVE_TRANSACTIONS, intake_application(settings)) or 0


def begin(settings: Settings, query: LiveQuery, number: int, of: Fingerprint) -> Checkpoint:
    """A generation in use from now on. Its checkpoint is empty, but for what the caller has put into its folder before."""
    started = Checkpoint(places.root(settings) / query.name, str(number), query, of)
    started.use({"number": number, "fingerprint": of})
    return started


def next_number(settings: Settings, query: LiveQuery) -> int:
    """The number of the next generation: larger than that of any that its table, or a folder, knows."""
    number = files.next_number(places.root(settings) / query.name)
    return _unused(settings, query.table, lambda each: application(query, each), number)


def _newest_intake(settings: Settings) -> int:
    return _unused(settings, LIVE_TRANSACTIONS, _intake, 2) - 1


def _unused(settings: Settings, table: Table, name: Callable[[int], str], number: int) -> int:
    """The first number, from one on, by whose transaction identifier nothing was written to a table."""
    while applied(settings, table, name(number)) is not None:
        number += 1
    return number


def _delta(settings: Settings, table: Table) -> DeltaTable | None:
    path = str(table.path(settings))
    return DeltaTable(path) if DeltaTable.is_deltatable(path) else None


def _intake(number: int) -> str:
    return f"live {INTAKE}/{number}"


def _lost(query: LiveQuery, why: str) -> LedgerError:
    return LedgerError(
        f"live {query.name}: the state of {query.table.name} is gone or older than the table: {why}; expected the checkpoint that "
        f"wrote it: bring it back, restore a savepoint (run savepoint restore), or rebuild the table: "
        f"run upgrade --mode stateless --query {query.name}"
    )
