"""What `run forget` refuses before it waits for anything, and what other jobs do while an erasure is unfinished. No Spark."""

import json
from pathlib import Path

import pytest

from spark_jobs.control import erasures
from spark_jobs.control.erasures import Plan
from spark_jobs.run import main
from spark_jobs.runtime.settings import Settings, read_settings
from spark_jobs.service import heartbeat
from spark_jobs.service.services import LIVE

WORDS = ["forget", "--customer", "C00000001", "--who", "Ada", "--why", "asked"]
PLAN = Plan("one", "C00000002", "Ada", "asked", {"customers": [("customers", 0, 3)]}, ["Jan Novak"], ["T1"])


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("LEDGER_HOME", str(tmp_path / "home"))
    return read_settings()


@pytest.mark.parametrize("without", ["--customer", "--who", "--why"])
def test_who_asks_for_whom_and_why_must_be_said(without: str, capsys: pytest.CaptureFixture[str]) -> None:
    place = WORDS.index(without)
    for words in (WORDS[:place] + WORDS[place + 2 :], [*WORDS[: place + 1], "", *WORDS[place + 2 :]]):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 2
        assert without in capsys.readouterr().err


def test_an_unfinished_erasure_comes_before_any_other_job(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    erasures.save(settings, PLAN)
    assert erasures.unfinished(settings) == PLAN
    assert erasures.file_of(settings).stat().st_mode & 0o077 == 0
    assert main(WORDS) == 1
    assert "the erasure of another customer, by Ada, stopped halfway" in caplog.messages[-1]
    assert main(["release"]) == 1
    assert "run forget again with the same --customer" in caplog.messages[-1]
    assert "C00000002" not in caplog.text
    erasures.save_erased(settings, PLAN)  # only the search is left: it stands in nobody's way
    erasures.refuse_unfinished(settings)


def test_an_application_that_runs_is_named(settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    class Alive:
        def is_alive(self) -> bool:
            return True

    monkeypatch.setattr(heartbeat, "read", lambda _, service: [Alive()] if service == LIVE else [])
    assert main(WORDS) == 1
    assert "live_control stop" in caplog.messages[-1]


def test_the_record_of_an_erasure_does_not_name_the_person(settings: Settings) -> None:
    assert "C00000002" not in PLAN.customer_hash
    assert PLAN.customer_hash != Plan(**(json.loads(json.dumps(PLAN.__dict__)) | {"id": "two"})).customer_hash
