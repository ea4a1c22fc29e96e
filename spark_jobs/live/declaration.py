"""What a live query declares: the table that it writes, the stream that it is, and what its state means. Pure: frames in, frames out."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pyspark.sql import DataFrame

from spark_jobs.lake.tables import LIVE_BESIDE, LIVE_RESULTS, Table
from spark_jobs.runtime.settings import Settings


@dataclass(frozen=True)
class Reader:
    """Gives a query the stream of a source, by its name, with the watermark if it is of live rows; and the settings, for thresholds."""

    stream: Callable[[str], DataFrame]
    settings: Settings

    def __call__(self, name: str) -> DataFrame:
        """The stream of a source."""
        return self.stream(name)


@dataclass(frozen=True)
class LiveQuery:
    """One query, which looks for new rows of the live table that it follows every `seconds`, by streams named `sources`.

    A source that is named as a table beside (LIVE_BESIDE), as `bronze_customers`, is of that table.

    `meaning` is what of it cannot be seen in its state's schema, and must not change while the state is kept. `finish` makes the rows
    to be written of a batch of the stream, where that is no matter of a stream (a look-up, a table at its present version): it may give
    other rows when a batch is repeated after a crash, of which only one set is written. It must not be used to drop rows silently.
    `lateness` is by how many seconds the watermark of the query stays behind the newest event: at least what the intake accepts.
    """

    table: Table
    build: Callable[[Reader], DataFrame] = field(repr=False)
    meaning: Mapping[str, str] = field(hash=False)
    sources: tuple[str, ...] = ("live_transactions",)
    seconds: float = 15  # windows end every two hours: looking more often would slow the intake down
    finish: Callable[[DataFrame, Settings], DataFrame] | None = field(default=None, repr=False)
    lateness: Callable[[Settings], int] = field(default=lambda settings: settings.allowed_lateness_seconds, repr=False)

    @property
    def name(self) -> str:
        """How operators call it: the table without `gold.live_`."""
        return self.table.name.removeprefix("gold.live_")

    @property
    def follows(self) -> Table:
        """The live table whose rows it takes."""
        return LIVE_RESULTS[self.table]

    @property
    def beside(self) -> Table | None:
        """The table of bronze that it reads beside that one."""
        return LIVE_BESIDE.get(self.table)

    def source(self, name: str) -> Table:
        """The table of one of its sources."""
        return self.beside if self.beside and name == self.beside.name.replace(".", "_") else self.follows
