"""A gate that does not come to an end is a closed one."""

import json
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from spark_jobs import control
from spark_jobs.control.judged_rows import Written, open_query
from spark_jobs.lake.tables import LAYERS, QUALITY_RESULTS
from spark_jobs.releases import gates
from spark_jobs.runtime.errors import GateClosed
from spark_jobs.runtime.limited import NoAnswer, limited
from spark_jobs.runtime.settings import Settings
from tests.support.warehouse import LOADED, settings_of, table_named

pytestmark = pytest.mark.xdist_group("expectations")
Copy = Callable[[], Settings]

ENDLESS = "select count(*) from generate_series(1, 100000000) a cross join generate_series(1, 100000000) b"


def test_great_expectations_that_hangs_closes_the_gate(copy_home: Copy) -> None:
    """It reads a stored suite that never comes: a pipe to which nobody writes."""
    settings = copy_home()
    stored = settings.quality / "gx" / "expectations" / "bronze" / "transactions.json"
    stored.parent.mkdir(parents=True)
    os.mkfifo(stored)
    file = settings.home / "verdict.json"
    found = r"bronze\.accounts judgement: found no answer within 8 s; last: .*, expected a judgement within LEDGER_GATE_SECONDS"
    with pytest.raises(GateClosed, match=found):
        gates.run(settings, "bronze", "run", verdict_file=file, now=LOADED, limit_seconds=8)
    verdict = json.loads(file.read_text())
    assert (verdict["verdict"], len(verdict["failed"])) == ("closed", len(LAYERS["bronze"]))
    assert {row["success"] for row in control.read(settings, QUALITY_RESULTS).to_pylist()} == {False}
    with pytest.raises(GateClosed, match="gate bronze closed on record"):
        gates.refuse_if_closed(settings, "bronze")


def ask(home: str, sql: str) -> int:
    settings = settings_of(Path(home))
    written = Written(table_named("bronze.accounts"), 0, 1, 1)
    return int(open_query(settings, written, {}, LOADED)(sql)[0][0].as_py())


def fail() -> None:
    raise ValueError("found nothing")


def die() -> None:
    logging.getLogger("expectations").info("measuring silver.things")
    os._exit(9)


def test_a_query_that_does_not_end_is_ended(good_home: Path) -> None:
    before = psutil.Process().children()  # of other tests
    with limited(settings_of(good_home), ask) as call:
        assert call(60, str(good_home), "select count(*) from written") == 2
    with limited(settings_of(good_home), ask) as call, pytest.raises(NoAnswer, match=r"no answer within 3 s; last: starting"):
        call(3, str(good_home), ENDLESS)
    assert psutil.Process().children() == before


def test_a_process_that_nobody_calls_ends(tmp_path: Path) -> None:
    before = psutil.Process().children()
    with limited(settings_of(tmp_path), ask):
        assert len(psutil.Process().children()) == len(before) + 1
    assert psutil.Process().children() == before


def test_a_process_that_has_ended_before_it_was_called_gives_no_answer(tmp_path: Path) -> None:
    before = psutil.Process().children()
    with limited(settings_of(tmp_path), ask) as call:
        (process,) = (each for each in psutil.Process().children() if each not in before)
        process.kill()
        while process.status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.01)
        with pytest.raises(NoAnswer, match=r"the process ended with exit code -9; last: starting"):
            call(60, str(tmp_path), "select 1")


def test_a_process_that_fails_or_dies_gives_no_answer(tmp_path: Path) -> None:
    with limited(settings_of(tmp_path), fail) as call, pytest.raises(NoAnswer, match=r"ValueError: found nothing"):
        call(60)
    found = r"the process ended with exit code 9; last: measuring silver\.things"
    with limited(settings_of(tmp_path), die) as call, pytest.raises(NoAnswer, match=found):
        call(60)


def test_within_its_limit_a_gate_judges_as_it_does_without(copy_home: Copy) -> None:
    settings = copy_home()
    gates.run(settings, "bronze", "run", now=LOADED, limit_seconds=120)
    rows = control.read(settings, QUALITY_RESULTS).to_pylist()
    assert {(row["table"], row["success"], row["failed"]) for row in rows} == {(table.name, True, 0) for table in LAYERS["bronze"]}


def test_an_error_inside_great_expectations_closes_the_gate(copy_home: Copy) -> None:
    """A folder where it wants to store a suite."""
    settings = copy_home()
    (settings.quality / "gx" / "expectations" / "bronze" / "transactions.json").mkdir(parents=True)
    with pytest.raises(GateClosed, match=r"bronze\.accounts great_expectations: found \w+: .*, expected no error"):
        gates.run(settings, "bronze", "run", now=LOADED)
    assert {row["success"] for row in control.read(settings, QUALITY_RESULTS).to_pylist()} == {False}
