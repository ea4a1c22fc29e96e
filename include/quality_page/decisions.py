"""A decision with its evidence: what closed each gate, in numbers, and what every choice would do to readers."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from include.quality_page import quarantine, rebuilt
from include.quality_page.reading import Row, Warehouse
from include.quality_page.status import Status
from include.quality_page.words import counted, share
from spark_jobs.control.verdicts import Verdict
from spark_jobs.lake.tables import BACKFILLS, BATCHES, Table

WORST, EXAMPLES = 5, 3
LOOKED_THROUGH = 500  # rows of quarantine, for examples of a range
_PER_THOUSAND = "quarantined_per_thousand"
_AT_MOST = re.compile(r"at most ([0-9.]+)$")
_JUDGED = """select sum(input) as input, sum(output) as output, sum(duplicates) as duplicates, sum(quarantined) as quarantined,
    max(_newest_event_at) as newest_event_at from t
    where job = 'silver' and "table" = $name and last_batch >= $first and first_batch <= $last"""


Worst = tuple[tuple[str, int, str], ...]  # rule, records, their share


@dataclass(frozen=True)
class Evidence:
    """A closed verdict with the records of its batches: `says` is the quarantine in numbers, empty where it is about something else."""

    verdict: Verdict
    says: str
    worst: Worst
    examples: tuple[quarantine.Quarantined, ...]

    @property
    def table(self) -> str:
        """The quarantine table of the topic that was judged."""
        return f"silver.{self.verdict.topic}_quarantine"


@dataclass(frozen=True)
class Effect:
    """What readers lack now, by topic: records that silver took since the release, of these the valid ones and those in quarantine."""

    topic: str
    taken: int
    valid: int
    quarantined: int


@dataclass(frozen=True)
class Effects:
    """What a choice would change. `newest_event_at` is how far the data would reach after *release anyway*.

    `topics` is what live runs brought; `rebuilt` counts the records that backfills have judged again since the release, `changed` the
    rows of tables that became others.
    """

    topics: tuple[Effect, ...]
    newest_event_at: datetime | None
    rebuilt: int = 0
    changed: int = 0

    @property
    def taken(self) -> int:
        """The records that a roll-back takes from bronze again."""
        return sum(each.taken for each in self.topics)

    @property
    def valid(self) -> int:
        """The rows that readers get when it is released anyway."""
        return sum(each.valid for each in self.topics)

    @property
    def quarantined(self) -> int:
        """The records that stay in quarantine, whatever is chosen but a re-drive."""
        return sum(each.quarantined for each in self.topics)


def evidence(warehouse: Warehouse, verdicts: Iterable[Verdict]) -> list[Evidence]:
    """What is known about closed verdicts. The records of the same batches stand with the first verdict that is about them."""
    sums: dict[tuple[str, int, int], Row] = {}
    found = []
    for verdict in verdicts:
        batches = (verdict.topic, verdict.first_batch, verdict.last_batch)
        is_new = batches not in sums
        if verdict.layer == "gold":
            found.append(Evidence(verdict, "", (), ()))
            continue
        if rebuilt.is_of_backfill(warehouse, verdict):  # its batches are all batches, and their records nearly all the live run's
            found.append(_of_backfill(warehouse, verdict, is_new))
            sums.setdefault(batches, {})
            continue
        facts = sums.get(batches) or _sums(warehouse, *batches)
        sums[batches] = facts
        worst, examples = _records(warehouse, verdict, facts["quarantined"]) if is_new and facts["quarantined"] else ((), ())
        found.append(Evidence(verdict, _in_quarantine(verdict, facts), worst, examples))
    return found


def effects(warehouse: Warehouse, status: Status) -> Effects | None:
    """What silver has taken beyond the release; None where that cannot be read."""
    found, newest = [], None
    for topic in status.held:
        first = status.release.last_batches.get(f"bronze.{topic}", 0) + 1 if status.release else 0
        facts = _sums(warehouse, topic, first, 2**62)
        found.append(Effect(topic, facts["input"] or 0, facts["output"] or 0, facts["quarantined"] or 0))
        newest = facts["newest_event_at"] or newest
    steps = rebuilt.steps_since(warehouse, status.release.at if status.release else None)
    judged, changed = (sum(int(step[name] or 0) for step in steps) for name in ("rows", "changed"))
    is_known = status.is_release_known and warehouse.unreadable.isdisjoint({BATCHES.name, BACKFILLS.name})
    return Effects(tuple(each for each in found if each.taken), newest, judged, changed) if is_known else None


def _of_backfill(warehouse: Warehouse, verdict: Verdict, is_new: bool) -> Evidence:
    """What is known about a closed verdict of a backfill: the records of its range."""
    of_step = rebuilt.read(warehouse, verdict)
    if of_step is None or not of_step.rows:
        return Evidence(verdict, "", (), ())
    if not is_new:
        return Evidence(verdict, of_step.says, (), ())
    batches = [row["_batch"] for row in of_step.rows]
    chosen = quarantine.Filter(None, min(batches), max(batches))
    table = quarantine.TABLES[f"silver.{verdict.topic}_quarantine"]
    rows = [row for row in quarantine.rows_of(warehouse, table, chosen, most=LOOKED_THROUGH) if row.place in of_step.places]
    worst = tuple((rule, count, share(count, len(of_step.rows))) for rule, count in of_step.rules[:WORST])
    return Evidence(verdict, of_step.says, worst, tuple(rows[:EXAMPLES]))


def _in_quarantine(verdict: Verdict, facts: Row) -> str:
    quarantined, taken = facts["quarantined"] or 0, facts["input"] or 0
    if not quarantined:
        return ""
    says = f"{quarantined:,} of {counted(taken, 'record')} are in quarantine ({share(quarantined, taken)})"
    limit = _limit(verdict)
    return says if limit is None else f"{says}; the limit is {int(limit * taken / 1000):,} ({share(limit, 1000)})"


def _records(warehouse: Warehouse, verdict: Verdict, quarantined: int) -> tuple[Worst, tuple[quarantine.Quarantined, ...]]:
    """The rules that the records of a verdict's batches break most often, and some of these records."""
    table = quarantine.TABLES[f"silver.{verdict.topic}_quarantine"]
    chosen = quarantine.Filter(None, verdict.first_batch, verdict.last_batch)
    rules = list(quarantine.groups(warehouse, table, chosen, "rule").items())[:WORST]
    examples = _examples(warehouse, table, chosen, [rule for rule, _ in rules])
    return tuple((rule, rows, share(rows, quarantined)) for rule, rows in rules), tuple(examples)


def _examples(warehouse: Warehouse, table: Table, chosen: quarantine.Filter, rules: list[str]) -> list[quarantine.Quarantined]:
    """A row of each of the rules most broken, no row twice, filled up with the newest rows."""
    kinds = [replace(chosen, rule=rule) for rule in rules] + [chosen]
    found = {row.place: row for kind in kinds for row in quarantine.rows_of(warehouse, table, kind, most=EXAMPLES if kind is chosen else 1)}
    return list(found.values())[:EXAMPLES]


def _limit(verdict: Verdict) -> float | None:
    """How many of 1,000 records may be in quarantine, where the gate was closed by that."""
    expected = next((each.expected for each in verdict.critical if each.expectation == _PER_THOUSAND and each.expected), "")
    found = _AT_MOST.search(expected)
    return float(found[1]) if found else None


def _sums(warehouse: Warehouse, topic: str, first: int, last: int) -> Row:
    rows = warehouse.select(BATCHES, _JUDGED, name=f"silver.{topic}", first=first, last=last)
    return rows[0] if rows else {"input": 0, "output": 0, "duplicates": 0, "quarantined": 0, "newest_event_at": None}
