"""Silencing the alerts of an account: what counts at which time, what is refused, and what the list says. No JVM."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from spark_jobs import control, run
from spark_jobs.control import alert_silences
from spark_jobs.lake.tables import ALERT_SILENCES
from spark_jobs.runtime.settings import Settings, read_settings

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("LEDGER_HOME", str(tmp_path))
    return read_settings()


def test_the_newest_row_of_an_account_counts_until_its_time(settings: Settings) -> None:
    def decide(account: str, *, until: datetime | None = None, is_silenced: bool = True) -> None:
        alert_silences.record(settings, account, "ann", "known", NOW, until=until, is_silenced=is_silenced)  # a clock that stands still

    decide("A1", until=NOW + HOUR)
    decide("A2")
    decide("A3")
    decide("A3", is_silenced=False)
    assert alert_silences.in_effect(settings, NOW + HOUR - timedelta(seconds=1)).keys() == {"A1", "A2"}
    assert alert_silences.in_effect(settings, NOW + HOUR).keys() == {"A2"}
    decide("A2", is_silenced=False)
    decide("A3")
    assert alert_silences.in_effect(settings, NOW + HOUR).keys() == {"A3"}
    assert control.read(settings, ALERT_SILENCES).num_rows == 6


def test_the_commands_record_who_and_why_and_refuse_what_is_over(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--account", "A1", "--who", "ann", "--why", "known to the bank"]
    assert run.main(["live_alerts", "silence", *words, "--until", "2001-01-01"]) == 2
    assert run.main(["live_alerts", "silence", *words, "--until", "soon"]) == 2
    assert alert_silences.in_effect(settings, datetime.now(UTC)) == {}
    assert run.main(["live_alerts", "silence", *words, "--until", "2126-01-01"]) == 0
    (row,) = alert_silences.in_effect(settings, datetime.now(UTC)).values()
    assert (row["who"], row["why"], f"{row['until_at']:%Y-%m-%d}") == ("ann", "known to the bank", "2126-01-01")
    assert run.main(["live_alerts", "list"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == "no alerts"
    assert second.startswith("A1 is silenced until 2126-01-01T00:00:00Z, since ")
    assert second.endswith(", by ann: known to the bank")
    assert run.main(["live_alerts", "list", "--account", "A2"]) == 0
    assert capsys.readouterr().out.splitlines() == ["no alerts"]
    assert run.main(["live_alerts", "unsilence", *words]) == 0
    assert alert_silences.in_effect(settings, datetime.now(UTC)) == {}
    with pytest.raises(SystemExit, match="2"):
        run.main(["live_alerts", "silence", "--account", "A1", "--who", "ann"])
