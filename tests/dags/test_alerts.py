"""Alerts through Airflow's own notifiers, to a real HTTP server and a real mail server."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from airflow.sdk.execution_time.context import ConnectionAccessor
from deltalake import DeltaTable, write_deltalake

from include.orchestration.alerts import alerts, once_per_release
from include.orchestration.progress import refuse_stale_release
from spark_jobs import control
from spark_jobs.lake.tables import BRONZE_TRANSACTIONS, LAYERS, RELEASES, ensure_tables
from spark_jobs.runtime.settings import Settings, read_settings
from tests.support.listeners import HOST, MailServer, Webhook, listening, port_of
from tests.support.task_instance import TaskInstance

CLOSED = AirflowFailException(
    "gate silver is closed: failed t unique (found {{ 7 * 7 }} <b>, expected at most 0); report: file:///q/8.html"
)
TOKEN = "t0ken-4711-in-the-path"
NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


@pytest.fixture
def webhook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Webhook]:
    server = Webhook()
    monkeypatch.setenv("LEDGER_ALERT_WEBHOOK", f"http://{HOST}:{port_of(server)}/hook/{TOKEN}?key=a+b")
    with listening(server):
        yield server


@pytest.fixture
def mail(monkeypatch: pytest.MonkeyPatch) -> Iterator[MailServer]:
    server = MailServer()
    connection: dict[str, Any] = {"conn_type": "smtp", "host": HOST, "port": port_of(server)}
    monkeypatch.setenv("AIRFLOW_CONN_SMTP_DEFAULT", json.dumps(connection | {"extra": {"disable_ssl": True, "disable_tls": True}}))
    monkeypatch.setenv("LEDGER_ALERT_MAIL", "ada@example.org, bob@example.org")
    with listening(server):
        yield server


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("LEDGER_HOME", str(tmp_path / "home"))
    return read_settings()


def failed(error: Exception | None = CLOSED) -> Context:
    """The context that Airflow hands to a failure callback; without an error where the task's process was killed."""
    return TaskInstance().context(conn=ConnectionAccessor(), **({"exception": error} if error else {}))


def test_the_webhook_is_told_what_was_found_what_to_do_and_where_to_look(webhook: Webhook) -> None:
    (notifier,) = alerts("a quality gate did not open", "decide in Airflow.")
    notifier(failed())
    ((path, body),) = webhook.received
    assert path == f"/hook/{TOKEN}?key=a+b"
    assert body == {
        "text": f"a quality gate did not open\n{CLOSED}\nWhat to do: decide in Airflow.\n"
        "DAG run: http://127.0.0.1:8080/dags/medallion/runs/manual__1"
    }


def test_mail_tells_the_same_and_what_failed_is_no_markup(mail: MailServer) -> None:
    (notifier,) = alerts("a quality gate did not open", "decide in Airflow.")
    notifier(failed())
    ((sender, recipients, message),) = mail.received
    assert recipients == ["ada@example.org", "bob@example.org"]
    assert sender == "ada@example.org"  # the connection names none
    assert message["Subject"] == "Ledger: a quality gate did not open"
    (part,) = message.iter_parts()
    text = part.get_content()
    for expected in ("found {{ 7 * 7 }} &lt;b&gt;", "report: file:///q/8.html", "decide in Airflow.", 'href="http://127.0.0.1:8080/dags/'):
        assert expected in text


def test_the_connection_names_the_sender(mail: MailServer, monkeypatch: pytest.MonkeyPatch) -> None:
    extra = {"disable_ssl": True, "disable_tls": True, "from_email": "ledger@example.org"}
    monkeypatch.setenv("AIRFLOW_CONN_SMTP_DEFAULT", json.dumps({"conn_type": "smtp", "host": HOST, "port": port_of(mail), "extra": extra}))
    alerts("x", "y")[0](failed())
    assert mail.received[0][0] == "ledger@example.org"


def test_a_task_whose_process_was_killed_is_told_too(webhook: Webhook) -> None:
    alerts("ingestion has stopped", "look.")[0](failed(None))
    assert "its process ended without an error; see its log" in webhook.received[0][1]["text"]


def test_both_are_told(webhook: Webhook, mail: MailServer) -> None:
    assert [type(notifier).__name__ for notifier in alerts("x", "y")] == ["WebhookNotifier", "SmtpNotifier"]


@pytest.mark.parametrize("status", [404, 500])
def test_an_alert_that_fails_is_an_error_that_shows_no_token(webhook: Webhook, status: int, capfd: pytest.CaptureFixture[str]) -> None:
    webhook.status = status
    with pytest.raises(AirflowException) as failure:
        alerts("x", "y")[0](failed())
    assert TOKEN not in shown(capfd, failure.value)


def test_a_webhook_that_is_away_is_an_error_that_shows_no_token(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("LEDGER_ALERT_WEBHOOK", f"http://{HOST}:9/hook/{TOKEN}?key=a+b")
    with pytest.raises(AirflowException, match="the alert was not sent to LEDGER_ALERT_WEBHOOK: ConnectionError") as failure:
        alerts("x", "y")[0](failed())
    assert TOKEN not in shown(capfd, failure.value)


def shown(capfd: pytest.CaptureFixture[str], error: Exception) -> str:
    """All that was logged, before anything is masked: the scheduler's copy of a task's log is not."""
    logged = capfd.readouterr().out
    assert "Failed to send notification" in logged
    return f"{logged} {error!r}"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LEDGER_ALERT_WEBHOOK", "hooks.example.org/s3cret"),
        ("LEDGER_ALERT_WEBHOOK", "ftp://example.org/s3cret"),
        ("LEDGER_ALERT_WEBHOOK", "https://example.org/a b"),
        ("LEDGER_ALERT_MAIL", "ada"),
        ("LEDGER_ALERT_MAIL", "ada@example.org,"),
        ("LEDGER_ALERT_MAIL", "ada@example.org bob@example.org"),
        ("LEDGER_RELEASE_STALE_MINUTES", "-1"),
    ],
)
def test_settings_that_are_refused(name: str, value: str) -> None:
    with pytest.raises(Exception, match=f"{name}: found") as failure:
        read_settings({name: value})
    assert "s3cret" not in str(failure.value)


def ingest(settings: Settings, batch: int, at: datetime) -> None:
    """One bronze batch that was written at a moment."""
    ensure_tables(settings, [table for tables in LAYERS.values() for table in tables])
    schema = DeltaTable(str(BRONZE_TRANSACTIONS.path(settings))).schema()
    row = {"_topic": "transactions", "_partition": 0, "_offset": batch, "_batch": batch, "_ingested_at": at, "_ingested_on": at.date()}
    rows = pa.Table.from_pylist([row], pa.schema(schema.to_arrow()))
    write_deltalake(str(BRONZE_TRANSACTIONS.path(settings)), rows, mode="append")


def release(settings: Settings, number: int, at: datetime, batch: int) -> None:
    row = {"release_id": number, "released_at": at, "table": "bronze.transactions", "version": 1, "rows": 1, "last_batch": batch}
    control.append(settings, RELEASES, [row])


def minutes_ago(minutes: int) -> datetime:
    return NOW - timedelta(minutes=minutes)


def test_a_release_is_stale_when_rows_have_waited_too_long(home: Settings) -> None:
    refuse_stale_release(NOW)  # nothing yet
    ingest(home, 1, minutes_ago(59))
    refuse_stale_release(NOW)
    with pytest.raises(AirflowFailException, match="found no release at all, and for 61 minutes rows in bronze"):
        refuse_stale_release(NOW + timedelta(minutes=2))
    release(home, 1, minutes_ago(50), batch=1)
    refuse_stale_release(NOW + timedelta(hours=9))  # a quiet night: the release holds everything
    ingest(home, 2, NOW + timedelta(hours=9))
    refuse_stale_release(NOW + timedelta(hours=9, minutes=60))
    with pytest.raises(
        AirflowFailException, match=r"found release 1 of 2026-11-20T11:10Z, and for 61 minutes rows .* expected .* 60 minutes"
    ):
        refuse_stale_release(NOW + timedelta(hours=9, minutes=61))


def test_the_limit_is_a_setting(home: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    ingest(home, 1, minutes_ago(61))
    monkeypatch.setenv("LEDGER_RELEASE_STALE_MINUTES", "120")
    refuse_stale_release(NOW)


def test_a_stale_release_is_told_once_and_the_next_one_again(home: Settings, webhook: Webhook) -> None:
    tell = once_per_release(alerts("the release is stale", "look.")[0])
    for number in (1, 2):
        release(home, number, NOW, batch=1)
        webhook.status = 500
        with pytest.raises(AirflowException):
            tell(failed())
        webhook.status = 200
        for _ in range(3):
            tell(failed())
        assert len(webhook.received) == 2 * number  # one that failed, and one that did not
