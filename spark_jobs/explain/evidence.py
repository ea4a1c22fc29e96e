"""The evidence for one cell: its silver rows, the cell as they make it, the versions of dimensions, and what is said of the rows aside."""

from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from string import Template

import pyarrow as pa
from deltalake.exceptions import DeltaError

from spark_jobs.explain.cells import literal
from spark_jobs.explain.plans import DAYS, PARTS
from spark_jobs.explain.snapshot import Row, Session, Snapshot
from spark_jobs.gold.declaration import GoldTable
from spark_jobs.lake import tables
from spark_jobs.runtime.text import shown

MOST_ROWS, MOST_BESIDE = 100, 20  # listed of the rows, and of what lies beside them
_LONGEST = 300  # of an error that is shown
_KEY = {tables.SILVER_CUSTOMERS: "customer_id", tables.SILVER_ACCOUNTS: "account_id"}
_NAMES = {"silver": tables.SILVER_TRANSACTIONS, "late": tables.TRANSACTIONS_LATE, "duplicates": tables.TRANSACTIONS_DUPLICATES}
_ROWS = Template("select * from silver where $condition")
_OF_CELL = Template("select * from rows where not ($aside)")
_LAST_DAYS = Template("select * from rows order by day desc limit $most")
_VERSIONS = Template("select * from dimension where $key in (select distinct $key from rows)")
_USED = Template(
    "select distinct $columns from versions v join rows r on r.$key = v.$key and $valid_then order by v.$key, v.valid_from limit $most"
)
_LISTED = Template("select *, $aside as _is_aside from rows order by $in_time limit $most")
_REDRIVEN = Template(
    "select distinct r._topic, r._partition, r._offset, r._batch from of_cell r join redrives d on r._topic = d._topic "
    "and r._partition = d._partition and r._offset = d._offset where d.\"table\" = '$silver'"
)
_WITHIN = Template("select count(*) as n from of_cell where event_at >= $start and event_at < $end")
_LATE = Template(
    "select l.* from late l where l.event_at >= $first and l.event_at <= $last and l.transaction_id in (select transaction_id from rows)"
)
_LATE_COUNT = Template("select count(*) as n from late where event_at <= $last")
_DUPLICATES = (
    "select d.* from duplicates d where d.transaction_id in (select transaction_id from rows) "
    "order by d.transaction_id, d._batch, d._topic, d._partition, d._offset"
)


@dataclass
class Evidence:
    """The tables in memory that one cell of a table needs; they are read when they are first asked for."""

    session: Session
    table: GoldTable
    cell: Row

    def __post_init__(self) -> None:
        self._words = PARTS | {name: literal(value) for name, value in self.cell.items()}
        silver = self._fill(_ROWS.substitute(condition=self.table.cell.rows))
        if self.table.cell.by_day:
            self.session.view("of_cell", silver)
            self.session.keep("rows", DAYS)
            return
        (self.session.view if self.table.cell.rows == "true" else self.session.keep)("rows", silver)  # all of silver is too much to keep
        if self.table.cell.dimension:
            self.session.keep("versions", _VERSIONS.substitute(key=_KEY[self.table.cell.dimension]))
        for name, sql in self.table.cell.steps.items():
            self.session.keep(name, self._fill(sql))
        self.session.view("of_cell", self._fill(_OF_CELL.substitute(aside=self.table.cell.aside)))

    @property
    def condition(self) -> str:
        """The condition on silver.transactions by which the rows were found, as a person would write it."""
        return Template(self.table.cell.rows).substitute({name: f"'{shown(value)}'" for name, value in self.cell.items()})

    @cached_property
    def count(self) -> int:
        """How many silver rows make the cell; of one that is made of days, how many these rows are."""
        return int(self._one("select count(*) as n from of_cell")["n"])

    @cached_property
    def made(self) -> list[Row]:
        """The cell's columns as the rows make them, in one row; none where they make no such cell, several where they make more."""
        return [self.table.cell.finish(row) for row in self.session.query(self._fill(self.table.cell.made))]

    @cached_property
    def not_made(self) -> str:
        """Of a table that is declared in SQL, why its SELECT is not computed here a second time; empty where it is."""
        if not self.table.query:
            return ""
        if not self.table.cell.made:
            return "its SELECT reads another table of gold, or the versions of both customers and accounts"
        try:
            _ = self.made
        except (DeltaError, pa.ArrowException, OSError) as error:
            reason = " ".join(str(error).split())[-_LONGEST:]
            return f"DataFusion, which computes it here in place of Spark, does not run its SELECT ({reason})"
        return ""

    def differences(self) -> list[str]:
        """Where the cell is not what the rows make: column, what was found and what the rows give."""
        if self.not_made:
            return []
        made = self.made if self.count else []
        if len(made) != 1:
            return [f"the {self.count} rows of silver make {len(made)} such cells, found 1"]
        names = [name for name in self.table.columns if name in made[0]]
        differing = [name for name in names if self.cell[name] != made[0][name]]
        return [f"{name}: found {shown(self.cell[name])}, the rows give {shown(made[0][name])}" for name in differing]

    def rows(self) -> list[Row]:
        """The first rows, by time and arrival; `_is_aside` of those that stand beside the cell only. Days: the last ones."""
        if self.table.cell.by_day:
            return self.session.query(_LAST_DAYS.substitute(most=MOST_ROWS))
        return self.session.query(_LISTED.substitute(PARTS, aside=self._fill(self.table.cell.aside), most=MOST_ROWS))

    @cached_property
    def arrivals(self) -> list[Row]:
        """Of the cell's rows their batches, with how many each has brought: `n`."""
        return self.session.query("select _batch, count(*) as n from of_cell group by _batch order by _batch")

    def redriven(self) -> list[Row]:
        """The places and batches of the cell's rows that control.redrives speaks of."""
        return self.session.query(_REDRIVEN.substitute(silver=tables.SILVER_TRANSACTIONS.name))

    @cached_property
    def span(self) -> Row:
        """The first and last event time of the rows."""
        return self._one("select min(event_at) as first, max(event_at) as last from of_cell")

    def within(self, start: datetime, end: datetime) -> int:
        """How many of the cell's rows have an event time in [start, end)."""
        return int(self._one(_WITHIN.substitute(start=literal(start), end=literal(end)))["n"])

    def versions(self) -> list[Row]:
        """The versions of the dimension that hold at the rows' times."""
        dimension = self.table.cell.dimension
        if dimension is None:
            return []
        columns = ", ".join(f"v.{name}" for name in dimension.columns)
        return self.session.query(_USED.substitute(PARTS, columns=columns, key=_KEY[dimension], most=MOST_ROWS))

    def late(self) -> dict[str, Row]:
        """What silver.transactions_late records about the rows, by id."""
        span = self._one("select min(event_at) as first, max(event_at) as last from rows")
        if span["first"] is None:
            return {}
        sql = _LATE.substitute(first=literal(span["first"]), last=literal(span["last"]))
        return {row["transaction_id"]: row for row in self.session.query(sql)}

    def late_count(self) -> int:
        """How many rows up to the last one's time were late."""
        last = self.span["last"]
        return int(self._one(_LATE_COUNT.substitute(last=literal(last)))["n"]) if last else 0

    def duplicates(self) -> list[Row]:
        """The rows with the ids of these, which silver has left out, in order of arrival."""
        return self.session.query(_DUPLICATES)

    def _fill(self, sql: str) -> str:
        return Template(sql).substitute(self._words)

    def _one(self, sql: str) -> Row:
        return self.session.query(sql)[0]


def open_session(snapshot: Snapshot, table: GoldTable) -> Session:
    """The silver tables that the cells of a table need, as a snapshot has them."""
    named = _NAMES | ({"dimension": table.cell.dimension} if table.cell.dimension else {})
    opened = {name: snapshot.open(table) for name, table in named.items()}
    if tables.REDRIVES.exists(snapshot.settings):
        opened["redrives"] = tables.REDRIVES.open(snapshot.settings)
    return Session(**opened)
