"""What follows from the declaration of a topic: tables, columns, and how a file's texts become its messages."""

from pathlib import Path

import pytest

from include.producer import Disturbances, file_sources, files, plan_messages
from include.producer.__main__ import main
from include.producer.records import FIELDS, TOPICS
from spark_jobs.bronze.imports.texts import fields_of, to_message
from spark_jobs.lake.ddl import parse_columns
from spark_jobs.lake.topic import COORDINATES, Topic
from spark_jobs.lake.topics import BY_TOPIC
from tests.spark.silver.added.branches import TOPIC as BRANCHES
from tests.spark.silver.added.card_payments import TOPIC as CARD_PAYMENTS


def test_events_have_a_table_beside_for_each_other_fate() -> None:
    assert [table.name for table in (CARD_PAYMENTS.bronze, *CARD_PAYMENTS.released, *CARD_PAYMENTS.indexes)] == [
        *("bronze.card_payments", "silver.card_payments", "silver.card_payments_duplicates", "silver.card_payments_quarantine"),
        *("silver.card_payments_late", "silver.card_payment_ids"),
    ]
    assert CARD_PAYMENTS.silver.keys == ("payment_id",)
    assert CARD_PAYMENTS.silver.ddl == (
        "payment_id string, card_id string, merchant string, event_at timestamp, event_on date, booked_time timestamp, "
        f"amount decimal(18,2), installments int, {COORDINATES}"
    )
    assert CARD_PAYMENTS.content == ("card_id", "merchant", "booked_time", "amount", "installments", "event_at")


def test_versions_have_a_history_and_a_quarantine() -> None:
    assert [table.name for table in (*BRANCHES.released, *BRANCHES.indexes)] == ["silver.branches", "silver.branches_quarantine"]
    assert BRANCHES.silver.keys == ("branch_id", "valid_from")
    assert [name for name, _, _ in parse_columns(BRANCHES.columns)] == [
        *("branch_id", "city", "employees", "opened_date", "valid_from", "valid_to", "is_current", "is_deleted"),
    ]


@pytest.mark.parametrize(
    ("topic", "texts", "told"),
    [
        (
            CARD_PAYMENTS,
            {"payment_id": "P1", "event_at": "2013-01-01 08:00:00", "amount": "12.50", "note": "x"},
            '{"paymentId":"P1","cardId":null,"merchant":null,"paidTime":1357027200000,"bookedTime":null,"amount":12.50,"installments":null,'
            '"note":"x"}',
        ),
        (
            BRANCHES,
            {"branchId": "B1", "city": "Brno", "employees": "12", "valid_from": "1356912000000", "openedDate": "1990-05-01"},
            '{"branchId":"B1","city":"Brno","employees":12,"openedDate":"1990-05-01","updateTime":1356912000000}',
        ),
    ],
    ids=["events", "versions"],
)
def test_history_of_a_topic_becomes_its_messages(topic: Topic, texts: dict[str, str], told: str) -> None:
    fields = fields_of(topic, list(texts), "a file")
    assert to_message(topic, fields)(list(texts.values()))[1].decode() == told


def test_the_producer_sends_the_file_of_any_topic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Here of accounts, as if they were no topic of the bank: by the names of their fields, in any order."""
    monkeypatch.delitem(files.COLUMNS, "accounts")
    monkeypatch.delitem(files._TO_RECORD, "accounts")
    file = tmp_path / "accounts.csv"
    file.write_text("update_time,account_id,frequency,district_id,creation_date\n2013-01-01T00:00:00Z,A1,,7,2013-01-01\n")
    (message,) = plan_messages(file_sources(tmp_path, ["accounts"]), Disturbances())
    assert (message.key, message.value) == (
        b"A1",
        b'{"accountId":"A1","districtId":7,"frequency":null,"creationDate":"2013-01-01","updateTime":1356998400000}',
    )
    file.write_text("account_id,frequency\n")
    assert main(["replay", "--data", str(tmp_path), "--only", "accounts"]) == 2
    assert "accounts.csv lacks the columns districtId, creationDate, updateTime" in capsys.readouterr().err


def test_every_topic_can_be_sent_and_its_fields_are_those_declared() -> None:
    assert set(TOPICS) == FIELDS.keys() == BY_TOPIC.keys()
