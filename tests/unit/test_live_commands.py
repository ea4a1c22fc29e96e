"""What asks the live queries to stand still for a while, and whether they may run again when it is over."""

from pathlib import Path

import pytest

from spark_jobs import leases, tables
from spark_jobs.errors import LeaseHeld
from spark_jobs.service import control
from spark_jobs.service.services import LIVE
from spark_jobs.settings import Settings, read_settings
from spark_jobs.streaming import commands


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return read_settings({"LEDGER_HOME": str(tmp_path)})


@pytest.mark.parametrize(
    ("state", "who", "after"),
    [
        (control.STAND_STILL, "run upgrade", control.RUN),  # of an upgrade that was killed
        (control.STAND_STILL, "ann", control.STAND_STILL),
        (control.RUN, "ann", control.RUN),
    ],
)
def test_only_what_such_a_job_asked_for_is_taken_back(settings: Settings, state: str, who: str, after: str) -> None:
    asked = control.ask(settings, LIVE, state, who, "")
    with commands._at_rest(settings, "savepoint create"):
        assert control.read_wanted(settings, LIVE) == asked
    wanted = control.read_wanted(settings, LIVE)
    assert wanted.state == after
    assert (wanted == asked) == (after == state)


def test_nothing_is_done_while_another_process_has_a_live_table(settings: Settings) -> None:
    tables.ensure_tables(settings, tables.LIVE)
    with (
        leases.hold(settings, [tables.LIVE_REFUSED], owner="another one"),
        pytest.raises(LeaseHeld, match="another one"),
        commands._at_rest(settings, "upgrade"),
    ):
        pytest.fail("it went on")
