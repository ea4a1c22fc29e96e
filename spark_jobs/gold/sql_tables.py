"""Gold tables that are declared in SQL: a file `NAME.sql` with a header of comment lines and one SELECT (include/docs/sql-products.md).

The file becomes a GoldTable like those of spark_jobs/gold/tables, so the rest of the pipeline does not know the difference. What can
be wrong in the text is refused here, without Spark; what needs Spark, in selects.py.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from string import Template

from spark_jobs.gold.declaration import Cell, GoldTable
from spark_jobs.gold.selects import Make, Part, Select, Selected
from spark_jobs.gold.strategies import HOURS_A_DAY, Keys, Strategy, Whole, Windows
from spark_jobs.lake.silver_tables import SILVER_ACCOUNTS, SILVER_CUSTOMERS, SILVER_TRANSACTIONS
from spark_jobs.lake.sql_files import SECONDS, SqlFile, cut, read_files
from spark_jobs.lake.table import Table
from spark_jobs.runtime.errors import SettingsError
from spark_jobs.runtime.late_spark import F

_REQUIRED, _OPTIONAL = ("keys", "time", "columns", "touches"), ("description",)
_DIMENSIONS = {"customers": SILVER_CUSTOMERS, "accounts": SILVER_ACCOUNTS}
_MOST_DAYS = 366
# Columns of silver.transactions that are never null, and that a row keeps: a table may be rebuilt by their values.
_BY = ("transaction_id", "account_id", "customer_id", "type", "event_on")
_MADE = Template("select * from ($query\n) as made where $where")
_TOUCHES = "`all`, `rows by COLUMN` or `windows of N minutes`, `hours` or `days`"


def find_tables(folder: Path, others: Mapping[str, Table]) -> tuple[list[GoldTable], list[str]]:
    """The tables of all `.sql` files in a folder and below it, and why other files are none, a line each.

    `others` are the gold tables that are declared in Python. A table that is made of another one comes after it.
    """
    known, found, refused = dict(others), list[GoldTable](), list[str]()
    for file, text in sorted(read_files(folder), key=lambda each: "{gold." in each[1]):
        try:
            found.append(load(file, text, known))
            known[found[-1].name] = found[-1]
        except SettingsError as error:
            refused.append(str(error))
    return found, refused


def load(file: Path, text: str, known: Mapping[str, Table]) -> GoldTable:
    """The table that a file declares; `known` are the gold tables that it may be made of.

    Raises SettingsError, with file and line, for a header or a SELECT that cannot be right.
    """
    given = cut(file, text, _REQUIRED, _OPTIONAL)
    name = f"gold.{file.stem}"
    expected = "a new name in snake_case that does not begin with live_"
    given.check_name(name, known, expected, fits=not file.stem.startswith("live_"))
    columns = given.columns()
    keys, time = given.keys(columns), given.time(columns)
    query, reads = _query(given, known)
    strategy, cell = _geometry(given, columns, keys, time, Select(str(file), query, tuple(columns.items()), reads, given.line))
    made_of = next((table for table in reads.values() if table.layer == "gold"), None)
    followed = (table for table in reads.values() if table.layer == "silver")
    return GoldTable(
        name,
        ", ".join(f"{column} {kind}" for column, kind in columns.items()),
        keys=keys,
        time_column=time,
        follows=tuple(dict.fromkeys((SILVER_TRANSACTIONS, *followed, *(made_of.follows if made_of else ())))),
        made_of=made_of,
        of_windows=isinstance(strategy, Selected) and strategy.part is not None and strategy.part.name == time,
        strategy=strategy,
        cell=cell,
        query=query,
        description=given.description,
    )


def _query(given: SqlFile, known: Mapping[str, Table]) -> tuple[str, dict[str, Table]]:
    """The SELECT with its placeholders in the words that spark.sql fills in, and the tables that they name beside transactions."""
    query = given.one_select()
    reads = dict[str, Table]()
    is_fed = False
    for name, found in given.placeholders(query):
        table = _DIMENSIONS.get(name) or (known.get(name) if name and getattr(known.get(name), "made_of", None) is None else None)
        if table is not None:
            reads[name.replace(".", "_")] = table
        elif name != "transactions":
            expected = (
                "{transactions}, {customers}, {accounts} or {gold.TABLE}, a table that is not made of another one; a brace is {{ or }}"
            )
            given.refuse_at(found.start(), found[0], expected)
        is_fed |= name == "transactions" or (table is not None and table.layer == "gold")
    if not is_fed or sum(table.layer == "gold" for table in reads.values()) > 1:
        given.refuse(
            given.line, "a SELECT without {transactions}" if not is_fed else "several tables of gold", "{transactions}, or one {gold.TABLE}"
        )
    return re.sub(r"\{gold\.(\w+)\}", r"{gold_\1}", query), reads


def _geometry(given: SqlFile, columns: Mapping[str, str], keys: tuple[str, ...], time: str, select: Select) -> tuple[Strategy, Cell]:
    """How changes are applied, and how a cell is found, by what a change touches."""
    touches = given.fields["touches"].value
    of_gold = any(table.layer == "gold" for table in select.reads.values())
    if touches == "all":
        return Selected(select, _whole, None), _cell("true", (), keys, select)
    if of_gold:
        given.refuse_field("touches", touches, "all, because the SELECT reads another table of gold")
    named = [name for name in keys if name in _BY]
    if by := re.fullmatch(r"rows by (\w+)", touches):
        if by[1] not in _BY or by[1] not in columns:
            both = ", ".join(name for name in _BY if name in columns)
            given.refuse_field(
                "touches", touches, f"rows by a column of the table and of silver.transactions: here {both or 'there is none'}"
            )
        part = Part(by[1], by[1], (by[1], *(name for name in named if name != by[1])), touches)
        return Selected(select, _by(by[1]), part), _cell(f"{by[1]} = ${by[1]}", part.carried[1:], keys, select)
    window = re.fullmatch(r"windows of ([1-9]\d{0,5}) (minute|hour|day)s?", touches)
    seconds = int(window[1]) * SECONDS[window[2]] if window else 0
    if not window or seconds > _MOST_DAYS * SECONDS["day"]:
        given.refuse_field("touches", touches, f"{_TOUCHES}, of at most {_MOST_DAYS} days")
    if columns[time] != "timestamp" or time not in keys:
        given.refuse_field("touches", touches, f"the start of the window as time, a timestamp that is one of the keys (found {time})")
    length = f"{seconds} seconds"
    start = f"timestamp_seconds(unix_seconds(event_at) - pmod(unix_seconds(event_at), {seconds}))"
    part = Part(time, start, (time, *named), touches)
    rows = f"event_at >= ${time} and event_at < ${time} + interval '{length}'"
    return Selected(select, _of_windows(time, start, seconds), part), _cell(rows, part.carried[1:], keys, select)


def _whole(make: Make) -> Strategy:
    return Whole(lambda inputs: make(inputs.silver()))


def _by(key: str) -> Callable[[Make], Strategy]:
    return lambda make: Keys(make, key)


def _of_windows(time: str, start: str, seconds: int) -> Callable[[Make], Strategy]:
    """`days`: how many calendar days the rows of one window are apart at most."""
    day = HOURS_A_DAY * SECONDS["hour"]
    days = 0 if day % seconds == 0 else -(-seconds // day) - (seconds % day == 0)
    span = ("0 seconds", f"{seconds} seconds")
    return lambda make: Windows(lambda rows, _: make(rows), lambda _: F.expr(start), days=days, column=time, span=span)


def _cell(rows: str, same: Iterable[str], keys: Iterable[str], select: Select) -> Cell:
    """A cell is made by the SELECT over all rows of its window or key; of these, the ones that have other keys stand beside it."""
    of_versions = [name for name in select.reads if name in _DIMENSIONS]
    named = dict.fromkeys(select.reads, "versions") | {"transactions": "rows"}
    query = select.query.replace("$", "$$").format(**named) if len(of_versions) == len(select.reads) < 2 else ""
    where = " and ".join(f"(made.{name} is not distinct from ${name})" for name in keys)
    return Cell(
        rows=rows,
        made=_MADE.substitute(query=query, where=where) if query else "",
        dimension=select.reads[of_versions[0]] if of_versions else None,
        aside=f"not ({' and '.join(f'{name} = ${name}' for name in same)})" if same else "false",
    )
