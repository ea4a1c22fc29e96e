"""The head of the page: what readers see, which gates are closed, what is held back, what waits for a person."""

from dataclasses import dataclass
from datetime import UTC, datetime

from include.orchestration.decisions import DECISION_DAG, decision_run_id, uncounted, undecided
from include.quality_page.current import Release, held_back, newest_release, newest_verdicts, read_decisions
from include.quality_page.reading import Warehouse
from spark_jobs.control.verdicts import WAIT, Decision, Verdict
from spark_jobs.lake.tables import BRONZE, DECISIONS, QUALITY_RESULTS, RELEASES


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
    newest = newest_verdicts(warehouse, decisions)
    closed = [verdict for verdict in newest if not verdict.passed]
    held = held_back(warehouse, release)
    return Status(
        now=now or datetime.now(UTC),
        release=release,
        open=tuple(each for each in closed if each.decision is None or each.decision.choice == WAIT),
        held=held,
        judged=len(newest),
        unreadable=frozenset(warehouse.unreadable),
        decisions=tuple(decisions),
    )
