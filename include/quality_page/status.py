"""What stands at the head of the page: what readers see, which gates are closed, what is held back, what waits for a person."""

from dataclasses import dataclass
from datetime import UTC, datetime

from include.orchestration.decisions import DECISION_DAG, decision_run_id, uncounted, undecided
from include.quality_page.reading import Row, Warehouse
from spark_jobs.control.verdicts import WAIT, Decision, Verdict, with_causes
from spark_jobs.lake.tables import BATCHES, BRONZE, DECISIONS, QUALITY_RESULTS, RELEASES

# Of each table the newest verdict, and the closed ones since the last that passed.
_STANDING = """select * from (
      select *, row_number() over (partition by "table" order by _judged_at desc) as place,
        max(case when success then _judged_at end) over (partition by "table") as passed_at from t)
    where place = 1 or (not success and (passed_at is null or _judged_at > passed_at))"""
_NEWEST_RELEASE = "select * from t where release_id = (select max(release_id) from t)"
_NEWEST_EVENT = """select max(_newest_event_at) as at from t
    where job = 'silver' and "table" = 'silver.transactions' and last_batch <= $last_batch"""
_BEYOND = "select count(*) as n from t where _batch > $last_batch"
_DECISIONS = "select * from t order by decided_at desc limit $count"
DECISIONS_READ = 1000


@dataclass(frozen=True)
class Release:
    """The newest release: its number and time, its rows by table, its last batch by bronze table, its newest event."""

    number: int
    at: datetime
    rows: dict[str, int]
    last_batches: dict[str, int]
    newest_event_at: datetime | None


@dataclass(frozen=True)
class Status:
    """The state of the pipeline at `now`. `open` are closed verdicts that stop it; `held` counts bronze records beyond the release.

    `judged` counts the tables that gates have judged; `decisions` are those of people, newest first. What tables that are `unreadable`
    say is not known, and must not look well.
    """

    now: datetime
    release: Release | None
    open: tuple[Verdict, ...]
    held: dict[str, int]
    judged: int
    unreadable: frozenset[str]
    decisions: tuple[Decision, ...] = ()

    @property
    def uncounted(self) -> list[Decision]:
        """The answers to what is asked now that could not count, newest first; each says why."""
        return uncounted(self.asked, self.decisions)

    @property
    def are_gates_known(self) -> bool:
        """Whether it can be said which gates are closed."""
        return self.unreadable.isdisjoint({QUALITY_RESULTS.name, DECISIONS.name})

    @property
    def is_release_known(self) -> bool:
        """Whether it can be said what readers see."""
        return RELEASES.name not in self.unreadable

    @property
    def is_held_known(self) -> bool:
        """Whether it can be said what the release lacks."""
        return self.is_release_known and self.unreadable.isdisjoint(table.name for table in BRONZE)

    @property
    def asked(self) -> list[Verdict]:
        """The closed verdicts that nobody has decided about."""
        return undecided(self.open)

    @property
    def waiting(self) -> Decision | None:
        """The decision to wait, where a person has made it and nothing else is asked."""
        return next((verdict.decision for verdict in self.open if verdict.decision), None) if not self.asked else None

    @property
    def answer_path(self) -> str:
        """Where Airflow takes the answer, below its address: the open question, or the DAG to be triggered."""
        if self.asked and "__" in self.asked[0].run_id:  # a run of Airflow's, which asks by itself
            return f"dags/{DECISION_DAG}/runs/{decision_run_id(self.asked, self.decisions).replace('+', '%2B')}/tasks/ask/required_actions"
        return f"dags/{DECISION_DAG}"

    @property
    def layers(self) -> list[str]:
        """The layers whose gates are closed."""
        return sorted({verdict.layer for verdict in self.open})


def read_status(warehouse: Warehouse, now: datetime | None = None) -> Status:
    """The state of the pipeline now, by the control tables and the files of bronze."""
    release = newest_release(warehouse)
    decisions = read_decisions(warehouse)
    newest = [given[-1] for given in with_causes(warehouse.select(QUALITY_RESULTS, _STANDING), decisions).values()]
    standing = [verdict for verdict in newest if not verdict.passed]
    held = {table.topic: _count(warehouse.select(table, _BEYOND, last_batch=_last(release, table.name))) for table in BRONZE}
    return Status(
        now=now or datetime.now(UTC),
        release=release,
        open=tuple(each for each in standing if each.decision is None or each.decision.choice == WAIT),
        held=held,
        judged=len(newest),
        unreadable=frozenset(warehouse.unreadable),
        decisions=tuple(decisions),
    )


def newest_release(warehouse: Warehouse) -> Release | None:
    """The newest release; None where nothing was released yet."""
    rows = warehouse.select(RELEASES, _NEWEST_RELEASE)
    if not rows:
        return None
    last_batches = {row["table"]: int(row["last_batch"]) for row in rows if row["last_batch"] is not None}
    events = warehouse.select(BATCHES, _NEWEST_EVENT, last_batch=last_batches.get("bronze.transactions", 0))
    return Release(
        number=int(rows[0]["release_id"]),
        at=rows[0]["released_at"],
        rows={row["table"]: int(row["rows"] or 0) for row in rows},
        last_batches=last_batches,
        newest_event_at=events[0]["at"] if events else None,
    )


def read_decisions(warehouse: Warehouse) -> list[Decision]:
    """What people decided, newest first."""
    return [Decision(**row) for row in warehouse.select(DECISIONS, _DECISIONS, count=DECISIONS_READ)]


def _last(release: Release | None, table: str) -> int:
    return release.last_batches.get(table, 0) if release else 0


def _count(rows: list[Row]) -> int:
    return int(rows[0]["n"]) if rows else 0
