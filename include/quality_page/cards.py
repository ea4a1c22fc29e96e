"""A table as people look for it: what it holds, its rows over releases, its columns, who answers for it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from include.orchestration.assets import describe
from include.orchestration.defaults import DEFAULT_ARGS
from include.quality_page import charts
from include.quality_page.reading import Warehouse
from include.quality_page.words import counted, moment, number, size
from spark_jobs.control.verdicts import Verdict
from spark_jobs.lake.column_texts import meaning
from spark_jobs.lake.ddl import parse_columns
from spark_jobs.lake.tables import BY_NAME, RELEASES

OWNER = str(DEFAULT_ARGS["owner"])
RELEASES_SHOWN = 30
SIZES = 12  # of each the log of the table at that version is read

_ROWS = """select release_id, released_at, "table", rows, version from t
    where release_id > (select max(release_id) from t) - $count order by release_id"""
_ROWS_OF = """select release_id, released_at, "table", rows, version from t where "table" = $name order by release_id desc limit $count"""


@dataclass(frozen=True)
class Released:
    """A table in a release."""

    release: int
    at: datetime
    rows: int
    version: int


@dataclass(frozen=True)
class Column:
    """A column: its type in SQL's words, whether it is one of the keys, and what it means (empty: nobody has said it)."""

    name: str
    kind: str
    is_key: bool
    text: str


@dataclass(frozen=True)
class Card:
    """A table: its verdicts, newest first, and its releases, oldest first."""

    name: str
    verdicts: list[Verdict]
    releases: list[Released]

    @property
    def state(self) -> str:
        """The newest verdict's state; `new` where there is none."""
        return self.verdicts[0].state if self.verdicts else "new"

    @property
    def description(self) -> str:
        """One sentence."""
        return describe(BY_NAME[self.name])

    @property
    def columns(self) -> list[Column]:
        """The columns, in order."""
        table = BY_NAME[self.name]
        return [Column(name, kind, name in table.keys, meaning(table, name)) for name, kind, _ in parse_columns(table.ddl)]

    @property
    def rows(self) -> int | None:
        """Its rows in the newest release."""
        return self.releases[-1].rows if self.releases else None

    @property
    def trend(self) -> str:
        """What the newest release added: `+1,234`; empty where there is nothing to compare."""
        if len(self.releases) < 2:
            return ""
        change = self.releases[-1].rows - self.releases[-2].rows
        return f"{change:+,}" if change else "unchanged"

    @property
    def chart(self) -> charts.Chart:
        """Its rows, release by release."""
        return charts.spark(
            [each.rows for each in self.releases],
            [f"release {each.release}, {moment(each.at)} UTC: {number(each.rows)} rows" for each in self.releases],
        )

    @property
    def words(self) -> str:
        """What a search looks in."""
        texts = (f"{column.name} {column.text}" for column in self.columns)
        return " ".join([self.name, self.description, OWNER, self.state, *texts])


def all_cards(warehouse: Warehouse, verdicts: dict[str, list[Verdict]]) -> list[Card]:
    """A card for each table, in the order of the layers; `verdicts` by table."""
    found: dict[str, list[Released]] = {}
    for row in warehouse.select(RELEASES, _ROWS, count=RELEASES_SHOWN):
        found.setdefault(row["table"], []).append(_released(row))
    return [Card(name, verdicts.get(name, []), found.get(name, [])) for name in BY_NAME]


def card_of(warehouse: Warehouse, name: str, verdicts: list[Verdict], count: int) -> Card:
    """The card of one table, with its last `count` releases."""
    rows = warehouse.select(RELEASES, _ROWS_OF, name=name, count=count)
    return Card(name, verdicts, [_released(row) for row in reversed(rows)])


def charts_of(warehouse: Warehouse, card: Card) -> list[charts.Chart]:
    """Rows and bytes of a table, release by release; bytes of SIZES of these releases, as far as Delta's log reaches."""
    if not card.releases:
        return []
    step = -(-len(card.releases) // SIZES)
    chosen = card.releases[::-1][::step][::-1]
    sizes = warehouse.sizes(BY_NAME[card.name], [each.version for each in chosen])
    known = [(each, sizes[each.version]) for each in chosen if each.version in sizes]
    all_rows = [(each, each.rows) for each in card.releases]
    drawn = [_chart("Rows", counted(card.releases[-1].rows, "row"), all_rows, lambda count: counted(count, "row"))]
    return [*drawn, _chart("Bytes", size(known[-1][1]), known, size)] if known else drawn


def _chart(title: str, total: str, values: list[tuple[Released, int]], words: Callable[[int], str]) -> charts.Chart:
    """A bar for each release, from zero."""
    releases = [each for each, _ in values]
    says = [f"release {each.release}, {moment(each.at)} UTC: {words(count)}" for each, count in values]
    chart = charts.spark([count for _, count in values], says)
    first, last = (f"release {each.release}, {moment(each.at)} UTC" for each in (releases[0], releases[-1]))
    most = words(max(count for _, count in values))
    return replace(chart, title=title, total=total, says=_over(releases), most=most, first=first, last=last if last != first else "")


def _over(releases: list[Released]) -> str:
    first, last = releases[0], releases[-1]
    return f"in release {last.release}" if first == last else f"in release {last.release}; bars: releases {first.release} to {last.release}"


def _released(row: dict[str, object]) -> Released:
    at = row["released_at"]
    assert isinstance(at, datetime)
    return Released(int(str(row["release_id"])), at, int(str(row["rows"] or 0)), int(str(row["version"] or 0)))
