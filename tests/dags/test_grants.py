"""Which run of a backfill leads for which days: the cases one by one, and random backfills played to their end."""

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from include.orchestration.grants import DAY, MOST_DAYS, Run, grant_rows, leader_of, newest_grants, plan_group

FIRST = date(2024, 5, 1)
NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)


class Airflow:
    """The runs of a backfill as Airflow has them, and the grants on record; decisions are taken one at a time."""

    def __init__(self, states: Iterable[str], wanted: Mapping[int, tuple[Any, ...]] | None = None) -> None:
        days = [(number, FIRST + number * DAY, state) for number, state in enumerate(states)]
        self.runs = {day: Run(f"backfill__{day}", 0, day, state, wanted=(wanted or {}).get(number, ())) for number, day, state in days}
        self.grants: list[dict[str, Any]] = []
        self.now = NOW

    def day(self, number: int) -> Run:
        return self.runs[FIRST + number * DAY]

    def change(self, number: int, **changed: Any) -> None:
        self.runs[FIRST + number * DAY] = replace(self.day(number), **changed)

    def clear(self, number: int, state: str = "queued") -> None:
        self.change(number, clear_number=self.day(number).clear_number + 1, state=state, ended_at=None)

    def end(self, number: int, state: str) -> None:
        self.change(number, state=state, ended_at=self.now)

    def decide(self, number: int) -> list[int] | int:
        """What `find_days` of a run comes to: the numbers of the days that it leads for, or of the one that leads for it."""
        self.now += timedelta(seconds=1)
        run, grants = replace(self.day(number), state="running"), newest_grants(self.grants)
        self.runs[run.day] = run
        leader = leader_of(run, grants, self.runs.get, self.now)
        if leader is not None and leader.run_id != run.run_id:
            return (leader.day - FIRST).days
        group = plan_group(run, grants, self.runs.get, self.now)
        self.grants += grant_rows(run, group, self.now)
        return [(each.day - FIRST).days for each in group]


def test_the_first_that_decides_leads_for_all_days_that_wait() -> None:
    airflow = Airflow(["queued", "queued", "running", "running", "queued"])
    assert airflow.decide(2) == [0, 1, 2, 3, 4]
    assert [airflow.decide(number) for number in (3, 0, 4, 1)] == [2, 2, 2, 2]


def test_days_with_a_gap_between_them_are_groups_of_their_own() -> None:
    airflow = Airflow(["queued", "success", "queued", "queued", "failed", "queued"])
    assert [airflow.decide(number) for number in (0, 3, 5)] == [[0], [2, 3], [5]]
    assert airflow.decide(2) == 3


def test_days_whose_forms_want_other_things_are_groups_of_their_own() -> None:
    airflow = Airflow(["queued"] * 3, wanted={2: (True,)})
    assert [airflow.decide(number) for number in (0, 2)] == [[0, 1], [2]]


@pytest.mark.parametrize("first", [0, 799, 400])
def test_a_group_is_bounded_and_every_day_is_in_exactly_one(first: int) -> None:
    airflow = Airflow(["queued"] * 800)
    order = [first, *(number for number in range(800) if number != first)]
    groups = [decided for number in order if isinstance(decided := airflow.decide(number), list)]
    assert max(map(len, groups)) == MOST_DAYS
    assert sorted(number for group in groups for number in group) == list(range(800))
    assert all(group == list(range(group[0], group[-1] + 1)) for group in groups)


def test_a_leader_that_decides_again_leads_for_the_same_days() -> None:
    airflow = Airflow(["queued"] * 4)
    assert airflow.decide(1) == airflow.decide(1) == [0, 1, 2, 3]


def test_the_leaders_end_is_that_of_the_others() -> None:
    airflow = Airflow(["queued"] * 3)
    airflow.decide(0)
    airflow.end(0, "failed")
    assert airflow.decide(1) == 0


def test_a_run_that_is_cleared_rebuilds_its_day_again_and_leaves_the_others_alone() -> None:
    airflow = Airflow(["queued"] * 3)
    airflow.decide(0)
    for number in range(3):
        airflow.end(number, "success")
    airflow.clear(1)
    assert airflow.decide(1) == [1]


def test_a_backfill_of_days_that_were_rebuilt_rebuilds_them_again() -> None:
    airflow = Airflow(["queued"] * 3)
    airflow.decide(0)
    for number in range(3):
        airflow.end(number, "success")
        airflow.clear(number)
    assert airflow.decide(2) == [0, 1, 2]
    assert airflow.decide(0) == 2


def test_nobody_waits_for_a_leader_that_waits_to_start_again() -> None:
    airflow = Airflow(["queued"] * 3)  # one run at a time: day 0 could not start before day 1 has ended
    airflow.decide(0)
    airflow.clear(0)
    assert airflow.decide(1) == [0, 1, 2]
    assert airflow.decide(0) == 1


def test_a_grant_of_the_life_before_does_not_count() -> None:
    airflow = Airflow(["queued"] * 3)
    airflow.decide(0)
    airflow.clear(0, "running")  # what it led for may never have been rebuilt
    assert airflow.decide(1) == [0, 1, 2]


def test_a_leader_that_is_gone_or_made_again_is_not_waited_for() -> None:
    airflow = Airflow(["queued"] * 3)
    airflow.decide(0)
    leader = airflow.runs.pop(FIRST)
    assert airflow.decide(1) == [1, 2]
    assert airflow.decide(1) == [1, 2]
    airflow.grants = airflow.grants[:3]
    airflow.runs[FIRST] = replace(leader, state="queued")  # deleted and made again: the same name, cleared as often
    assert airflow.decide(1) == [0, 1, 2]


@pytest.mark.parametrize(("ended", "later", "led_by"), [(True, 1 * HOUR, 0), (True, 3 * HOUR, [1, 2]), (False, 30 * HOUR, 0)])
def test_a_grant_is_forgotten_some_time_after_its_leaders_end(ended: bool, later: timedelta, led_by: object) -> None:
    airflow = Airflow(["queued"] * 3)
    airflow.decide(0)
    if ended:
        airflow.end(0, "success")
    airflow.now += later
    assert airflow.decide(1) == led_by


def test_a_leader_of_another_backfill_that_still_runs_keeps_its_days() -> None:
    airflow = Airflow(["queued", "queued", "success", "success"])
    airflow.decide(0)
    airflow.clear(2)
    airflow.clear(3)
    assert airflow.decide(3) == [2, 3]


class Play(Airflow):
    """A backfill in random order, with failures, and with people who clear runs at any moment."""

    def __init__(self, luck: random.Random) -> None:
        super().__init__(["queued"] * luck.randint(1, 12))
        self.luck, self.most_active, self.clears = luck, luck.choice([1, 2, 3, 16]), luck.randint(0, 8)
        self.asked = dict.fromkeys(range(len(self.runs)), NOW)
        self.rebuilt = dict.fromkeys(self.asked, NOW - HOUR)
        self.leading: dict[int, list[int]] = {}

    def those(self, state: str) -> list[int]:
        return [number for number in self.asked if self.day(number).state == state]

    def choices(self) -> list[tuple[Callable[[int], None], int]]:
        """What Airflow may do next. A run that waits for one that runs does not wake."""
        running = self.those("running")
        if self.clears and self.luck.random() < 0.2:
            return [(self.clear_it, number) for number in self.asked]
        return [
            *((self.rebuild, number) for number in self.leading),
            *((self.find_days, number) for number in running if number not in self.leading and not self.is_waiting(number)),
            *((self.start, number) for number in self.those("queued") if len(running) < self.most_active),
        ]

    def is_waiting(self, number: int) -> bool:
        leader = leader_of(self.day(number), newest_grants(self.grants), self.runs.get, self.now)
        return leader is not None and leader.run_id != self.day(number).run_id and leader.state == "running"

    def start(self, number: int) -> None:
        self.change(number, state="running")

    def find_days(self, number: int) -> None:
        decided = self.decide(number)
        if isinstance(decided, list):
            self.leading[number] = decided
        elif self.day(decided).state in ("success", "failed"):
            self.end(number, self.day(decided).state)

    def rebuild(self, number: int) -> None:
        group, is_done = self.leading.pop(number), self.luck.random() < 0.8
        self.rebuilt.update(dict.fromkeys(group, self.now) if is_done else {})
        self.end(number, "success" if is_done else "failed")

    def clear_it(self, number: int) -> None:
        self.clears -= 1
        self.leading.pop(number, None)  # whatever it was at is killed
        self.clear(number, "running" if self.day(number).state == "running" else "queued")
        self.asked[number] = self.now


@pytest.mark.parametrize("seed", range(60))
def test_every_day_that_ends_well_was_rebuilt_since_it_was_asked_for(seed: int) -> None:
    play = Play(random.Random(seed))
    for _ in range(2000):
        if not play.clears and not play.those("queued") and not play.those("running"):
            break
        play.now += timedelta(seconds=1)
        if choices := play.choices():
            action, number = play.luck.choice(choices)
            action(number)
        else:
            assert play.clears, "nobody can go on"
    else:
        pytest.fail("it does not end")
    assert [number for number in play.those("success") if play.rebuilt[number] <= play.asked[number]] == []
