"""What asks the live queries to stand still for a while, and whether they may run again when it is over."""

import argparse
from pathlib import Path

import pytest

from spark_jobs import run
from spark_jobs.commands import live
from spark_jobs.control import rule_sets
from spark_jobs.lake import leases, tables
from spark_jobs.runtime.errors import LeaseHeld, LedgerError
from spark_jobs.runtime.settings import Settings, read_settings
from spark_jobs.service import checkpoints, desired_state
from spark_jobs.service.services import LIVE


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return read_settings({"LEDGER_HOME": str(tmp_path)})


OPTIONS = argparse.Namespace(name="upgrade", run_id="r")


@pytest.mark.parametrize(
    ("state", "who", "after"),
    [
        (desired_state.STOPPED, "run upgrade", desired_state.RUN),  # of an upgrade that was killed
        (desired_state.STOPPED, "ann", desired_state.STOPPED),
        (desired_state.RUN, "ann", desired_state.RUN),
    ],
)
def test_only_what_such_a_job_asked_for_is_taken_back(settings: Settings, state: str, who: str, after: str) -> None:
    asked = desired_state.ask(settings, LIVE, state, who, "")
    with live._stopped(settings, OPTIONS, "savepoint create"):
        assert desired_state.read_wanted(settings, LIVE) == asked
    wanted = desired_state.read_wanted(settings, LIVE)
    assert wanted.state == after
    assert (wanted == asked) == (after == state)


def test_a_state_that_is_newer_than_the_tables_is_refused_before_anything_is_written(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As after a restore of the warehouse without its checkpoints: what the intake writes next would count as taken."""
    tables.ensure_tables(settings, tables.LIVE)
    monkeypatch.setenv("LEDGER_HOME", str(settings.home))
    monkeypatch.setattr(live, "start_session", lambda *_, **__: pytest.fail("a session was started"))
    monkeypatch.setattr(rule_sets, "register", stop)
    folder = settings.checkpoints / "live" / "daily_totals"
    (folder / "1" / "offsets").mkdir(parents=True)
    (folder / checkpoints.FILE).write_text('{"number": 1, "fingerprint": {}}')
    for version, expected in (
        (1, "it goes on"),
        (2, "live daily_totals: the state is newer than the tables: found gold.live_transactions"),
    ):
        (folder / "1" / "offsets" / "0").write_text(f'v1\n{{}}\n{{"reservoirVersion":{version},"index":-1,"isStartingVersion":false}}')
        assert run.main(["live", "--available-now"]) == 1
        assert caplog.records[-1].getMessage().startswith(expected)
    (folder / checkpoints.FILE).write_text("{")  # lost: its query fails, and says so
    assert run.main(["live", "--available-now"]) == 1
    assert caplog.records[-1].getMessage() == "it goes on"


def stop(*_: object) -> None:
    raise LedgerError("it goes on")


def test_nothing_is_done_while_another_process_has_a_live_table(settings: Settings) -> None:
    tables.ensure_tables(settings, tables.LIVE)
    with (
        leases.hold(settings, [tables.LIVE_REFUSED], owner="another one"),
        pytest.raises(LeaseHeld, match="another one"),
        live._stopped(settings, OPTIONS, "upgrade"),
    ):
        pytest.fail("it went on")
