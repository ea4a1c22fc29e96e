"""The topic `alerts` holds each alert once for a `read_committed` reader, over crashes and when alerts are raised again."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from spark_jobs.kafka.topics import ALERTS as TOPIC
from spark_jobs.lake.tables import LIVE_ALERTS, LIVE_LOOKUP_ERRORS, ensure_tables
from spark_jobs.live import outbox
from spark_jobs.live.outbox import Outbox
from spark_jobs.live.publications import ALERTS, LOOKUP_ERRORS
from spark_jobs.runtime.settings import Settings, read_settings
from tests.support.committed import committed_messages

pytestmark = pytest.mark.integration

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def settings(tmp_path: Path, bootstrap: str) -> Settings:
    found = read_settings({"LEDGER_HOME": str(tmp_path / "home"), "LEDGER_KAFKA_BOOTSTRAP": bootstrap})
    ensure_tables(found, [LIVE_ALERTS, LIVE_LOOKUP_ERRORS])
    return found


def write(settings: Settings, alerts: dict[str, int], *, mode: Any = "append", is_silenced: bool = False) -> None:
    """Alerts by their ids, each with the batch that has written it."""
    schema = pa.schema(LIVE_ALERTS.delta_schema().to_arrow())
    rows = [
        {
            "alert_id": name,
            "kind": "much_money",
            "account_id": 'A"1',
            "raised_at": NOON,
            "found": Decimal("50000.10"),
            "allowed": Decimal(50000),
            "caused_by": [{"transaction_id": "T1", "_topic": "transactions", "_partition": 3, "_offset": 7}],
            "is_silenced": is_silenced,
            "_live_batch": batch,
        }
        for name, batch in alerts.items()
    ]
    write_deltalake(DeltaTable(str(LIVE_ALERTS.path(settings))), pa.Table.from_pylist(rows, schema), mode=mode)


def read(bootstrap: str) -> list[dict[str, Any]]:
    """Every committed message of the topic, in order."""
    messages = committed_messages(bootstrap, TOPIC.name)
    found = [json.loads(message.value() or b"", parse_float=Decimal) for message in messages]
    assert [(message.key() or b"").decode() for message in messages] == [alert["alertId"] for alert in found]
    return found


def test_alerts_are_published_once_over_crashes_and_when_they_are_raised_again(
    settings: Settings, bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restored savepoint raises the same alerts again in other batches, beside a new one; a new table does, too."""
    monkeypatch.setattr(outbox, "ROWS_AT_ONCE", 2)
    write(settings, {"a": 0, "b": 0, "c": 0, "d": 4, "not yet": 5})
    write(settings, {"silenced": 0}, is_silenced=True)
    for point in ("before a part of the outbox is committed", "after a part of the outbox is committed"):
        with monkeypatch.context() as patch:
            patch.setattr(outbox, "kill_point", lambda name, at=point: 1 / 0 if name == at else None)
            with pytest.raises(ZeroDivisionError):
                Outbox(settings, ALERTS).publish(4)
    publisher = Outbox(settings, ALERTS)
    assert (publisher.publish(4), publisher.publish(4), publisher.publish(5)) == (2, 0, 1)
    write(settings, {"a": 2, "d": 2, "e": 1}, mode="overwrite")
    assert Outbox(settings, ALERTS).publish(2) == 1
    other = read_settings({"LEDGER_HOME": str(settings.home / "other"), "LEDGER_KAFKA_BOOTSTRAP": bootstrap})
    ensure_tables(other, [LIVE_ALERTS])
    write(other, {"b": 0, "f": 0})
    assert Outbox(other, ALERTS).publish(0) == 1
    messages = read(bootstrap)
    assert [message["alertId"] for message in messages] == ["a", "b", "c", "d", "not yet", "e", "f"]
    assert messages[0] == {
        "alertId": "a",
        "kind": "much_money",
        "accountId": 'A"1',
        "raisedAt": 1704110400000,
        "raisedAtFormatted": "2024-01-01 12:00:00.000",
        "found": Decimal("50000.10"),
        "allowed": Decimal("50000.00"),
        "causedBy": [{"transactionId": "T1", "topic": "transactions", "partition": 3, "offset": 7}],
    }


def test_a_look_up_without_an_answer_is_an_alert_once(settings: Settings, bootstrap: str) -> None:
    """Look-ups that are made again fail for another row of the same batch, too."""

    def fail(*offsets: int, mode: Any = "append") -> None:
        schema = pa.schema(LIVE_LOOKUP_ERRORS.delta_schema().to_arrow())
        common = {"kind": "lookup_error", "event_at": NOON, "account_id": "A1", "cause": "TimeoutError", "looked_up_at": NOON, "_batch": 7}
        rows = [
            common
            | {"alert_id": f"lookup_error/transactions/0/{offset}", "transaction_id": f"T{offset}"}
            | {"customer_id": "C1", "_topic": "transactions", "_partition": 0, "_offset": offset}
            for offset in offsets
        ]
        write_deltalake(DeltaTable(str(LIVE_LOOKUP_ERRORS.path(settings))), pa.Table.from_pylist(rows, schema), mode=mode)

    def publish() -> int:
        upto = LOOKUP_ERRORS.ready(settings)
        return 0 if upto is None else Outbox(settings, LOOKUP_ERRORS).publish(upto)

    assert publish() == 0
    fail(1, 2)
    assert (publish(), publish()) == (2, 0)
    fail(2, 3, mode="overwrite")
    assert publish() == 1
    found = [message for message in read(bootstrap) if message["kind"] == "lookup_error"]
    assert [message["alertId"][-1] for message in found] == ["1", "2", "3"]
    assert found[0] == {
        "alertId": "lookup_error/transactions/0/1",
        "kind": "lookup_error",
        "accountId": "A1",
        "raisedAt": 1704110400000,
        "raisedAtFormatted": "2024-01-01 12:00:00.000",
        "cause": "TimeoutError",
        "causedBy": [{"transactionId": "T1", "topic": "transactions", "partition": 0, "offset": 1}],
    }
