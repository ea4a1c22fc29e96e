"""The cells of a gold table that a condition picks, and the message where it picks none."""

import re
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from string import Template
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from spark_jobs.explain.snapshot import Row, Session
from spark_jobs.lake import conditions as condition
from spark_jobs.lake.tables import Table
from spark_jobs.runtime.errors import SettingsError
from spark_jobs.runtime.masking import mask_error
from spark_jobs.runtime.text import shown, sql_text
from spark_jobs.runtime.values import DAY, Beyond

MOST_CELLS = 10
_COUNT = Template("select count(*) as n from cell where ($where\n)")
_CELLS = Template("select $columns from cell where ($where\n) order by $keys limit $most")
_NEAREST = Template(
    "select max(case when $name <= $literal then $name end) as below, min(case when $name >= $literal then $name end) as above from cell"
)
_BOUNDS = Template("select min($name) as below, max($name) as above from cell")
_NOISE = re.compile(r"(External|Schema|Arrow|Execution|SQL|Parquet|Generic DeltaTable) error: |Error during planning: |\bcell\.")
_UNREADABLE = (DeltaError, pa.ArrowException, OSError)
_LONGEST_MESSAGE = 300


@dataclass(frozen=True)
class Found:
    """The first cells by their keys, and how many there are."""

    cells: list[Row]
    count: int


def find(table: Table, delta: DeltaTable, where: str, most: int = MOST_CELLS) -> Found:
    """The cells that match a condition. Raises SettingsError, in one line, when it is none or there is no such cell."""
    condition.check(where)
    session = Session(cell=delta)
    words = {"columns": ", ".join(table.columns), "keys": ", ".join(table.keys), "most": str(most)}
    try:
        count = session.query(_COUNT.substitute(where=where))[0]["n"]
        cells = session.query(_CELLS.substitute(words, where=where)) if count else []
    except _UNREADABLE as error:
        raise SettingsError(f"--where: {_message_of(error)}; {table.name} has the columns {words['columns']}") from None
    if not cells:
        raise SettingsError(f"found no such cell in {table.name}: {_nearest(session, table, where)}")
    return Found(cells, count)


def literal(value: Any) -> str:
    """A value of a cell in SQL."""
    match value:
        case None:
            return "null"
        case datetime():
            return f"arrow_cast('{value.replace(tzinfo=None).isoformat()}', 'Timestamp(Microsecond, Some(\"UTC\"))')"
        case Beyond(micros, is_date):
            return f"arrow_cast({micros // DAY}, 'Date32')" if is_date else f"arrow_cast({micros}, 'Timestamp(Microsecond, Some(\"UTC\"))')"
        case date():
            return f"date '{value.isoformat()}'"
        case int() | Decimal():
            return str(value)
        case _:
            return sql_text(str(value))


def _message_of(error: BaseException) -> str:
    """What the engine says of a condition, in one line."""
    text = _NOISE.sub("", " ".join(mask_error(str(error)).split()))
    text = re.sub(r"Optimizer rule '\w+' failed caused by ", "", text)
    text = re.split(r" Valid fields are|\. Did you mean| at Line: ", text)[0][:_LONGEST_MESSAGE]
    return f"{text}: times are written as '2013-01-05' or '2013-01-05 10:30:00'" if "timestamp" in str(error) else text


def _nearest(session: Session, table: Table, where: str) -> str:
    """For each key that the condition compares with a literal, the nearest values there are; else the range of the keys."""
    if session.query("select count(*) as n from cell")[0]["n"] == 0:
        return "the table is empty"
    asked = condition.equalities(where, table.columns)
    values = [_near(session, name, _NEAREST.substitute(name=name, literal=text), text) for name, text in asked.items()]
    values = [text for text in values if text] or [_near(session, name, _BOUNDS.substitute(name=name), None) for name in table.keys]
    return f"expected values such as {'; '.join(values)}"


def _near(session: Session, name: str, sql: str, asked: str | None) -> str:
    try:
        found = session.query(sql)[0]
    except _UNREADABLE:
        return ""
    below, above = found["below"], found["above"]
    if asked is None:
        return f"{name} from {shown(below)} to {shown(above)}"
    if below == above:
        return f"{name} = {shown(below)}, which is there without the rest"
    return f"{name} = {' or '.join(shown(value) for value in (below, above) if value is not None)} (found {asked})"
