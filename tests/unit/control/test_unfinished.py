"""What a job that died left unfinished is finished before the next one begins, also when it comes while a lease is waited for."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest

from spark_jobs.control.unfinished import Finisher, Unfinished, finish_under_lease, lock_when_finished
from spark_jobs.runtime.settings import Settings
from tests.support.warehouse import settings_of


def no_session() -> NoReturn:
    pytest.fail("a session was started")


class Story:
    """What happened, in order; `due` is what is unfinished now."""

    def __init__(self, home: Path, *due: str) -> None:
        self.settings, self.due, self.told = settings_of(home), set(due), list[str]()
        self.comes_meanwhile = ""

    def kind(self, name: str, *, is_under_lease: bool = False) -> Unfinished:
        def finish(_: Settings, by: Finisher) -> None:
            self.told.append(f"{by.run_id} finishes {name}")
            self.due.remove(name)

        return Unfinished(lambda _: name in self.due, finish, is_under_lease)

    @contextmanager
    def lock(self) -> Iterator[str]:
        self.told.append("locked")
        if self.comes_meanwhile:
            self.due.add(self.comes_meanwhile)
            self.comes_meanwhile = ""
        yield "the lock"
        self.told.append("free")


def test_it_is_finished_before_the_lock_is_taken_and_what_needs_the_lock_after(tmp_path: Path) -> None:
    story, by = Story(tmp_path, "a", "b", "c"), Finisher("r", no_session)
    kinds = [story.kind("a"), story.kind("b", is_under_lease=True), story.kind("other")]
    with lock_when_finished(story.settings, story.lock, kinds, by) as held:
        finish_under_lease(story.settings, kinds, by)
        assert held == "the lock"
        story.told.append("job")
    assert story.told == ["r finishes a", "locked", "r finishes b", "job", "free"]
    assert story.due == {"c"}  # of a kind that the job did not name


def test_what_comes_while_the_lock_is_waited_for_is_finished_without_the_lock(tmp_path: Path) -> None:
    story, by = Story(tmp_path), Finisher("r", no_session)
    story.comes_meanwhile = "a"
    with lock_when_finished(story.settings, story.lock, [story.kind("a")], by):
        story.told.append("job")
    assert story.told == ["locked", "free", "r finishes a", "locked", "job", "free"]
