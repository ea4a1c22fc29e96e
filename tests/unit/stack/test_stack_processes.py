"""Processes are found by their mark, whoever started them, and stopped with all that descends from them."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from include.stack import processes
from include.stack.processes import Running, alive, environment_of, find_all, find_part, last_lines, start, stop, wait_until
from include.stack.shutdown import stop_parts
from spark_jobs.runtime.errors import LedgerError

LONG = "import time; time.sleep(600)"
PARENT = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {LONG!r}]).wait()"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); {LONG}"


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    def run_python(code: str, part: str = "test") -> Running:
        return start(tmp_path, part, [sys.executable, "-c", code], dict(os.environ), tmp_path / f"{part}.log")

    yield run_python
    stop(find_all(tmp_path), patience=0)


def await_that(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        os.sched_yield()


def test_a_part_is_found_by_its_home_and_name(run: Callable[..., Running], tmp_path: Path) -> None:
    started = run(LONG, "kafka")
    assert find_part(tmp_path, "kafka") == started.process
    assert find_part(tmp_path, "postgres") is None
    assert find_part(tmp_path / "other", "kafka") is None
    assert find_part(tmp_path / "." / "x" / "..", "kafka") == started.process


def test_a_part_that_was_started_is_found_at_once(run: Callable[..., Running], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the kernel shows its environment a moment later: of 400 that were started, one was not found."""
    asked = []

    def shown_late(process: psutil.Process) -> dict[str, str]:
        asked.append(process)
        return environment_of(process) if len(asked) > 3 else {}

    monkeypatch.setattr(processes, "environment_of", shown_late)
    started = run(LONG, "kafka")
    assert len(asked) > 3
    assert find_part(tmp_path, "kafka") == started.process


def test_children_of_a_killed_part_are_still_found_but_are_not_the_part(run: Callable[..., Running], tmp_path: Path) -> None:
    parent = run(PARENT)
    await_that(lambda: len(find_all(tmp_path)) == 2)
    child = parent.process.children()[0]
    parent.process.kill()
    await_that(lambda: not alive(parent.process))
    assert find_all(tmp_path) == [child]
    assert find_part(tmp_path, "test") is None
    stop_parts(tmp_path, None, lambda _: None)
    assert not alive(child)


def test_what_ignores_the_request_to_end_is_killed(run: Callable[..., Running]) -> None:
    stubborn = run(STUBBORN)
    await_that(lambda: "ready" in stubborn.log.read_text())
    assert stop([stubborn.process], patience=0.5) == [stubborn.process]
    assert not alive(stubborn.process)


def test_the_caller_and_its_ancestors_are_never_found(monkeypatch: pytest.MonkeyPatch) -> None:
    everyone = psutil.Process()
    monkeypatch.setattr("include.stack.processes._marked", lambda home, parts: [everyone, *everyone.parents()])
    found = find_all(Path("/"))
    assert everyone not in found
    assert not set(everyone.parents()) & set(found)


def test_a_part_that_ends_early_is_told_with_the_end_of_its_log(run: Callable[..., Running]) -> None:
    broken = run("print('one'); print('address in use')")
    with pytest.raises(LedgerError, match=r"test ended before it was ready; .*test\.log ends with: one \| address in use$"):
        wait_until(lambda: False, [broken], patience=20)


def test_a_part_that_is_never_ready_is_given_up(run: Callable[..., Running]) -> None:
    with pytest.raises(LedgerError, match="test was not ready after 0 s"):
        wait_until(lambda: False, [run(LONG)], patience=0.1)


def test_the_log_of_the_run_before_is_kept(run: Callable[..., Running], tmp_path: Path) -> None:
    for text in ("first", "second"):
        part = run(f"print({text!r})")
        part.process.wait(timeout=20)
        assert part.writer is not None
        part.writer.wait(timeout=20)
    assert last_lines(tmp_path / "test.log") == "second"
    assert last_lines(tmp_path / "test.log.1") == "first"
