"""Rows of texts as messages of the topics: names of columns, numbers, times, nulls, bytes."""

import json
import re
from decimal import Decimal

import pytest

from spark_jobs.bronze.imports.texts import fields_of, missing_fields, to_message
from spark_jobs.kafka.messages import parse_time
from spark_jobs.lake.topics import BY_TOPIC
from spark_jobs.runtime.errors import SettingsError

TRANSACTION = BY_TOPIC["transactions"].names


def value(topic: str, **texts: str | None) -> str:
    """The JSON of a row with these columns."""
    fields = fields_of(BY_TOPIC[topic], list(texts), "a file")
    return (to_message(BY_TOPIC[topic], fields)(list(texts.values()))[1]).decode("utf-8", "surrogateescape")


def test_a_row_becomes_the_message_that_the_topic_would_have() -> None:
    row = ["T1", "A1", "C1", "1357028613001", "2013-01-01 08:23:33.001", "Credit", 'He said "ž"', "900.50", "-1.0"]
    assert to_message(BY_TOPIC["transactions"], TRANSACTION)(row) == (
        b"T1",
        '{"transactionId":"T1","accountId":"A1","customerId":"C1","eventTime":1357028613001,"eventTimeFormatted":"2013-01-01 08:23:33.001",'
        '"type":"Credit","operation":"He said \\"ž\\"","amount":900.50,"balance":-1.0}'.encode(),
    )


def test_fields_have_types_of_their_topic_nulls_and_others_behind() -> None:
    expected = '{"accountId":"A1","districtId":7,"frequency":null,"creationDate":null,"updateTime":1356912000000,"a % \\"note\\"":"12"}'
    assert value("accounts", accountId="A1", districtId="7", **{'a % "note"': "12"}, updateTime="1356912000000", frequency=None) == expected
    assert json.loads(value("customers", customerId="C1", districtId="7", zipcode="012"))["districtId"] == "7"


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("12.50", "12.50"),
        ("12345678901234567.89", "12345678901234567.89"),
        ("0.1000000000000000055511151231257827", "0.1000000000000000055511151231257827"),
        ("1e2", "1e2"),
        ("-0.00", "-0.00"),
        ("+5", "5"),
        ("007.10", "7.10"),
        (".5", "0.5"),
        ("NaN", '"NaN"'),
        ("1,000.00", '"1,000.00"'),
        (" 5", '" 5"'),
        ("5\n", '"5\\n"'),
        ("٣", '"٣"'),
        (None, "null"),
    ],
)
def test_a_number_keeps_its_digits_and_what_is_none_is_a_string(written: str | None, told: str) -> None:
    found = value("transactions", transactionId="T1", amount=written)
    assert re.search(r'"amount":(.*),"balance"', found)[1] == told  # type: ignore[index]
    json.loads(found, parse_float=Decimal)


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"eventTime": "1357028613001"}, (1357028613001, "2013-01-01 08:23:33.001")),
        ({"event_time": "2013-01-01 08:23:33"}, (1357028613000, "2013-01-01 08:23:33.000")),
        ({"event_at": "2013-01-01T10:23:33.001999+02:00"}, (1357028613001, "2013-01-01 08:23:33.001")),
        ({"eventTimeFormatted": "2013-01-01 08:23:33.001"}, (1357028613001, "2013-01-01 08:23:33.001")),
        ({"eventTime": None, "eventTimeFormatted": "2013-02-30 08:23:33"}, (None, "2013-02-30 08:23:33")),
        ({"eventTime": "yesterday"}, (None, "yesterday")),
        ({"eventTime": "2013-01-01"}, (None, "2013-01-01")),
        ({"eventTime": "1357028613001", "eventTimeFormatted": "as it came"}, (1357028613001, "as it came")),
        ({"eventTime": "9" * 30}, (int("9" * 30), None)),
        ({"eventTime": None}, (None, None)),
    ],
)
def test_the_time_comes_from_either_column_and_what_cannot_be_read_is_kept(columns: dict[str, str | None], told: object) -> None:
    found = json.loads(value("transactions", transactionId="T1", **columns))
    assert (found["eventTime"], found["eventTimeFormatted"]) == told


def test_the_time_of_a_version_is_a_number_or_the_text_that_a_rule_judges() -> None:
    assert json.loads(value("customers", customer_id="C1", valid_from="2012-12-31 00:00:00+00"))["updateTime"] == 1356912000000
    assert json.loads(value("customers", customer_id="C1", updateTime="soon"))["updateTime"] == "soon"


@pytest.mark.parametrize(
    ("text", "millis"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01 00:00:00.9999999", 999),
        ("1969-12-31 23:59:59.999", -1),
        ("1970-01-01 01:00:00 +01:00", 0),
        ("1970-01-01 00:00:00-0530", 19_800_000),
        ("0001-01-01 00:00:00+14", None),
        ("1970-01-01 25:00:00", None),
        ("1970-01-01T00:00", None),
        ("1970-01-01", None),
        ("1970-02-29T00:00:00", None),
        ("", None),
        ("1970-01-01 00:00:00\n", None),
    ],
)
def test_times(text: str, millis: int | None) -> None:
    assert parse_time(text) == millis


def test_bytes_that_are_no_text_stay_as_they_are() -> None:
    text = b"Z\xfcrich".decode("utf-8", "surrogateescape")
    key, found = to_message(BY_TOPIC["customers"], ["customerId", "city"])(["C\udcff", text])
    assert key == b"C\xff"
    assert b'"city":"Z\xfcrich"' in found


def test_columns_are_found_in_other_spellings_and_missing_ones_are_named() -> None:
    fields = fields_of(BY_TOPIC["transactions"], [" Transaction_ID", "ACCOUNTID", "branch"], "a file")
    assert fields == ["transactionId", "accountId", "branch"]
    assert missing_fields(BY_TOPIC["transactions"], fields) == ["customerId", "eventTime", "type", "operation", "amount", "balance"]


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        (["trans_id", "amount"], "found no column transactionId among trans_id, amount"),
        (["transactionId;amount"], "found no column transactionId"),
        (["transactionId", "eventTime", "event_at"], "more than one column for eventTime"),
        (["transactionId", "x", "x"], "more than one column for x"),
        (["transactionId", ""], "a column without a name"),
    ],
)
def test_columns_that_cannot_be_used_are_refused(columns: list[str], told: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(told)):
        fields_of(BY_TOPIC["transactions"], columns, "a file")
