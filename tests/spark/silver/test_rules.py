"""Every row rule: a row that breaks it alone, the rows at its edges, and what the detail says."""

import json
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession, functions as F

from expectations.row_rules import FOLDER, read_rules
from spark_jobs.lake.topics import BY_TOPIC
from spark_jobs.silver.records import judge_records, quarantined
from tests.support.rows import KEYS, MESSAGES, Record, bronze, message, placed, written

pytestmark = pytest.mark.spark

DIMENSIONS = ("customers", "accounts")
MAY_2013 = 1367366400000
MINUTES_5 = 300_000

# topic -> rule -> rows that break only this rule
BREAKERS: dict[str, dict[str, list[Record]]] = {
    "transactions": {
        "parseable": [(b"T1", b"{"), (b"T1", None), (b"T1", b'{"transactionId":5,"amount":"x"}]'), (b"T1", b"\xff")],
        "transaction_id_present": [
            message("transactions", "transactionId"),
            *(written("transactions", "transactionId", text) for text in ('""', "null", "5", "true", "{}", "[]")),
        ],
        "account_id_format": [
            message("transactions", "accountId"),
            *(message("transactions", accountId=text) for text in (None, 1, "", "A0000001", "A000000011", "C00000001", "a00000001")),
            *(
                message("transactions", accountId=text)
                for text in ("A00000001\n", "A00000001\r\n", "A0000000\u0661", " A00000001", "\nA00000001")
            ),
            message("transactions", accountId="A0000000\uff11"),
        ],
        "customer_id_format": [
            message("transactions", "customerId"),
            *(message("transactions", customerId=text) for text in (None, 1, "", "C0000001", "C000000011", "A00000001", "c00000001")),
            *(message("transactions", customerId=text) for text in ("C00000001\n", "C00000001\u2028", "C0000000\u0661", "C00000001 ")),
        ],
        "event_time_plausible": [
            message("transactions", "eventTime"),
            *(written("transactions", "eventTime", text) for text in ("null", '"1357028613001"', "1357028613001.5", "0", "-1", "true")),
            *(written("transactions", "eventTime", text) for text in ("1e400", "1e-400", "99999999999999999999999", "10e2147483647")),
            written("transactions", "eventTime", "9" * 18),
        ],
        "type_known": [
            message("transactions", "type"),
            *(message("transactions", type=text) for text in (None, 1, "", "credit", "DEBIT", "Credit ", "Debit\n", "Transfer")),
        ],
        "operation_text": [written("transactions", "operation", text) for text in ("1", "true", "{}", '["x"]')],
        "amount_not_negative": [written("transactions", "amount", text) for text in ("-1", "-0.01", "-1e-2", "-1e2")],
        "amount_scale": [
            written("transactions", "amount", text)
            for text in (
                "1.234",
                "0.001",
                "12345678901234567.89",
                "10000000000000000",
                "1e16",
                "1234567890123456e-2",
                "1e400",
                "1e-400",
                "1" * 41,
                "10e2147483647",
            )
        ],
        "balance_scale": [
            message("transactions", "balance"),
            *(written("transactions", "balance", text) for text in ("null", '"12"', '"NaN"', "true", "{}", "1.234", "-0.001", "1e-3")),
            *(written("transactions", "balance", text) for text in ("-10000000000000000", "12345678901234567.89", "9999999999999999.99e0")),
        ],
    },
    "customers": {
        "parseable": [(b"C00000001", b""), (b"C00000001", b"{'customerId':'C00000001'}"), (None, b"[]")],
        "key_present": [(None, None), (b"", None), (b"", message("customers", customerId="")[1])],
        "key_matches": [
            message("customers", "customerId"),
            *(message("customers", customerId=text) for text in (None, 1, "", "C00000002", "c00000001", "C00000001\n")),
        ],
        "update_time_plausible": [
            message("customers", "updateTime"),
            *(written("customers", "updateTime", text) for text in ("null", '"1356912000000"', "1356912000000.5", "946684799999")),
        ],
        "district_id_whole": [
            written("customers", "districtId", text) for text in ('""', '"x"', '"1.5"', '"18\\n"', "1.5", "true", "2147483648", '"\u0661"')
        ],
        "birth_date_valid": [
            written("customers", "birthDate", text)
            for text in ('""', '"1990-02-30"', '"1990-2-3"', '"13.12.1990"', '"1990-12-13\\n"', '"1990-12-13T00:00"', "19901213", "[]")
        ]
        + [written("customers", "birthDate", text) for text in ('"0000-01-01"', '"0000-12-31"', '"10000-01-01"', '"-001-01-01"')],
    },
    "accounts": {
        "parseable": [(b"A00000001", b"1"), (b"A00000001", b"\xff"), (None, b"NaN")],
        "key_present": [(None, None), (b"", None), (b"", message("accounts", accountId="")[1])],
        "key_matches": [
            message("accounts", "accountId"),
            *(message("accounts", accountId=text) for text in (None, 1, "", "A00000002", "a00000001")),
        ],
        "update_time_plausible": [
            message("accounts", "updateTime"),
            *(written("accounts", "updateTime", text) for text in ("null", '"1356912000000"', "1356912000000.5", "946684799999")),
        ],
        "district_id_whole": [written("accounts", "districtId", text) for text in ('""', '"x"', "1.5", "false", "-2147483649", "1e400")],
        "creation_date_valid": [
            written("accounts", "creationDate", text)
            for text in ('""', '"2013-13-01"', '"2013-1-1"', '"2013-01-01 "', "2013", "{}", '"0000-12-31"')
        ],
    },
}

GOOD: dict[str, list[Record]] = {
    "transactions": [
        message("transactions"),
        message("transactions", "operation", "eventTimeFormatted"),
        *(message("transactions", operation=text) for text in (None, "", "Überweisung")),
        *(message("transactions", type=text) for text in ("Credit", "Debit")),
        *(
            written("transactions", "amount", text)
            for text in ("0", "-0", "-0.0", "0.1", "1e2", "1.100", "123456789012345e-2", "9999999999999999.99")
        ),
        *(written("transactions", "balance", text) for text in ("-9999999999999999.99", "-1e2", "-1.100", "0.00e5", "1E+2")),
        *(written("transactions", "eventTime", text) for text in ("1600000000000.0", "1.6e12", "1357028613001e0")),
        (b"another key", message("transactions")[1]),
    ],
    "customers": [
        message("customers"),
        (b"C00000001", None),
        message("customers", *(name for name in ("sex", "fullName", "districtId", "birthDate", "zipcode"))),
        *(written("customers", "districtId", text) for text in ("null", '"18"', "18", "18.0", "1.8e1", '"-1"', "2147483647", '"0018"')),
        *(written("customers", "birthDate", text) for text in ("null", '"2000-02-29"', '"0001-01-01"', '"9999-12-31"')),
    ],
    "accounts": [
        message("accounts"),
        (b"A00000001", None),
        message("accounts", "districtId", "frequency", "creationDate"),
        *(written("accounts", "districtId", text) for text in ("null", "55", '"55"', "-2147483648")),
        *(written("accounts", "creationDate", text) for text in ("null", '"2012-02-29"', '"0001-01-01"', '"9999-12-31"')),
    ],
}


def judged(rows: DataFrame, topic: str) -> DataFrame:
    rules = read_rules(topic)
    return judge_records(rows, BY_TOPIC[topic], rules)


def broken(rows: DataFrame, topic: str) -> list[list[str]]:
    return [row[0] for row in judged(rows, topic).orderBy("_partition", "_offset").select("broken_rules").collect()]


def details(spark: SparkSession, records: list[Record], topic: str = "transactions") -> list[str | None]:
    rows = judged(bronze(spark, topic, records), topic)
    if topic in DIMENSIONS:
        rows = quarantined(rows, BY_TOPIC[topic])
    return [row[0] for row in rows.orderBy("_offset").select("detail").collect()]


def test_every_rule_file_is_tested() -> None:
    assert {path.stem for path in FOLDER.glob("*.yaml")} == set(BREAKERS) == set(GOOD)


@pytest.mark.parametrize("topic", BREAKERS)
def test_every_rule_has_a_row_that_breaks_only_it(spark: SparkSession, topic: str) -> None:
    assert [rule.name for rule in read_rules(topic).rules] == list(BREAKERS[topic])
    cases = [(rule, record) for rule, records in BREAKERS[topic].items() for record in records]
    found = broken(bronze(spark, topic, [record for _, record in cases]), topic)
    assert [(record, rules) for (_, record), rules in zip(cases, found, strict=True)] == [(record, [rule]) for rule, record in cases]


@pytest.mark.parametrize("topic", GOOD)
def test_good_rows_break_none(spark: SparkSession, topic: str) -> None:
    found = broken(bronze(spark, topic, GOOD[topic]), topic)
    assert list(zip(GOOD[topic], found, strict=True)) == [(record, []) for record in GOOD[topic]]


def test_a_row_has_all_the_rules_it_breaks_in_their_order(spark: SparkSession) -> None:
    everything = [rule.name for rule in read_rules("transactions").rules if rule.name not in ("parseable", "operation_text")]
    assert broken(bronze(spark, "transactions", [(None, b"{}")]), "transactions") == [everything]
    dimension = ["key_present", "key_matches", "update_time_plausible"]
    assert broken(bronze(spark, "customers", [(None, b"{}")]), "customers") == [dimension]


@pytest.mark.parametrize(("topic", "field"), [("transactions", "eventTime"), ("customers", "updateTime"), ("accounts", "updateTime")])
def test_a_time_is_plausible_up_to_both_ends(spark: SparkSession, topic: str, field: str) -> None:
    rule = "event_time_plausible" if topic == "transactions" else "update_time_plausible"
    cases: list[tuple[str, Any, list[str]]] = [
        ("the first moment", 946684800000, []),
        ("one ms before it", 946684799999, [rule]),
        ("the last moment", MAY_2013 + MINUTES_5, []),
        ("one ms after it", MAY_2013 + MINUTES_5 + 1, [rule]),
    ]
    records = [message(topic, **{field: time}) for _, time, _ in cases]
    found = broken(bronze(spark, topic, records, loaded="2013-05-01 00:00:00"), topic)
    assert list(zip([name for name, _, _ in cases], found, strict=True)) == [(name, rules) for name, _, rules in cases]


@pytest.mark.parametrize(("topic", "field"), [("transactions", "eventTime"), ("customers", "updateTime"), ("accounts", "updateTime")])
def test_no_time_from_the_year_2262_on_is_plausible(spark: SparkSession, topic: str, field: str) -> None:
    """Where a topic keeps the time of its producers, a record's own may be any: that of a deletion, too."""
    last = 9_214_646_399_999
    rule = "event_time_plausible" if topic == "transactions" else "update_time_plausible"
    records = [message(topic, **{field: time}) for time in (last, last + 1)]
    deletions: list[Record] = [] if topic == "transactions" else [(records[0][0], None)]

    def judged_at(micros: int) -> list[list[str]]:
        rows = bronze(spark, topic, [*records, *deletions]).withColumn("_timestamp", F.timestamp_micros(F.lit(micros)))
        return broken(rows, topic)

    assert judged_at(1000 * last + 999) == [[], [rule], *([] for _ in deletions)]
    assert judged_at(1000 * last + 1000) == [[], [rule], *([rule] for _ in deletions)]
    assert judged_at(2**63 - 1) == [[], [rule], *([rule] for _ in deletions)]


@pytest.mark.parametrize("topic", BREAKERS)
def test_whatever_comes_is_kept_or_refused_with_a_reason(spark: SparkSession, topic: str) -> None:
    """None of these ends the job. A null value deletes in a dimension; a field that the topic does not have breaks no rule."""
    key = str(MESSAGES[topic][KEYS[topic]]).encode()
    field = "type" if topic == "transactions" else "districtId"
    unknown = {f"x{number}": [{"deep": [number]}] for number in range(50)}
    cases: list[tuple[bytes | None, list[str]]] = [
        (None, [] if topic in DIMENSIONS else ["parseable"]),
        *((value, ["parseable"]) for value in (b"", b" ", b"[]", b"null", b"0", b'""', b"NaN", b"\xff\xfe", b"\x00", b"{" * 10_000)),
        (written(topic, field, "[" * 10_000 + "]" * 10_000)[1], ["parseable"]),
        (written(topic, field, '"' + "x" * 1_000_000 + '"')[1], ["type_known" if topic == "transactions" else "district_id_whole"]),
        (written(topic, "x", '"' + "y" * 1_000_000 + '"')[1], []),
        (message(topic, **unknown)[1], []),
    ]
    rows = bronze(spark, topic, [(key, value) for value, _ in cases])
    assert [rules for _, rules in cases] == broken(rows, topic)
    found = details(spark, [(key, value) for value, rules in cases if rules], topic)
    assert all(0 < len(text or "") <= 300 for text in found)


def test_what_a_deletion_needs_is_its_key(spark: SparkSession) -> None:
    rows = placed(spark, [(b"C1", None, "customers", 0, 0, "1999-01-01", 1), (b"\xff", None, "customers", 0, 1, "2026-01-01", 1)])
    assert broken(rows, "customers") == [[], []]


def test_the_detail_says_what_was_found(spark: SparkSession) -> None:
    cases: dict[str, Record] = {
        "type_known: found string Transfer": message("transactions", type="Transfer"),
        "amount_scale: found number 1.234": written("transactions", "amount", "1.234"),
        "parseable: found 1 bytes of value": (b"T1", b"{"),
        "parseable: found no value": (b"T1", None),
        "account_id_format: found nothing": message("transactions", "accountId"),
        "account_id_format: found null": message("transactions", accountId=None),
        "account_id_format: found nothing; unknown fields: accountid, more": message("transactions", "accountId", accountid="A1", more=1),
        "type_known: found string x; balance_scale: found string y": message("transactions", type="x", balance="y"),
        "transaction_id_present: found string ": message("transactions", transactionId=""),
        f"type_known: found string {'x' * 200}": message("transactions", type="x" * 5000),
    }
    assert details(spark, [*cases.values(), message("transactions", more=1)]) == [*cases, None]


def test_the_detail_of_a_dimension_names_unknown_fields(spark: SparkSession) -> None:
    known = message("customers", customerId="C2")
    unknown = (b"C00000001", json.dumps({**json.loads(known[1] or b""), "district_id": 1, "Sex": 2}).encode())
    found = ["key_matches: found string C2", "key_matches: found string C2; unknown fields: district_id, Sex"]
    assert details(spark, [known, message("customers"), unknown], "customers") == found
