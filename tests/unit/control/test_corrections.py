"""Corrections: which files are refused and why, what is appended, and which values are in effect."""

import base64
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from spark_jobs import control
from spark_jobs.control import corrections, redrives
from spark_jobs.lake import tables
from spark_jobs.reprocessing.redrive_plan import Plan, plan
from spark_jobs.runtime.errors import SettingsError
from spark_jobs.runtime.settings import Settings, read_settings

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GOOD = {"topic": "transactions", "partition": 0, "offset": 1, "value": "{}", "who": "Ada", "why": "typed wrong"}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Transactions 0 to 3 in bronze; silver has judged them but for the last; 1 and 2 are in quarantine under rules of two versions."""
    settings = read_settings({"LEDGER_HOME": str(tmp_path / "home")})
    tables.ensure_tables(settings, (*tables.BRONZE, *tables.SILVER, *tables.SILVER_INDEXES, *tables.CONTROL))
    places: list[dict[str, Any]] = [{"_topic": "transactions", "_partition": 0, "_offset": n, "_batch": 1 + n // 3} for n in range(4)]
    append(settings, tables.BRONZE_TRANSACTIONS, [place | {"value": b"secret"} for place in places])
    broken = [
        place | {"value": b"secret", "broken_rules": [rule]} for place, rule in zip(places[1:3], ("type_known", "older"), strict=True)
    ]
    append(settings, tables.TRANSACTIONS_QUARANTINE, broken)
    rules = [{"name": "older", "field": "value", "holds": "false", "severity": "critical", "description": ""}]
    older = {"topic": "transactions", "version": "0", "text": json.dumps({"version": "0", "rules": rules})}  # JSON is YAML
    control.append(settings, tables.RULE_SETS, [older])
    control.append(settings, tables.BATCHES, [{"job": "silver", "table": "silver.transactions", "last_batch": 1}])
    return settings


def append(settings: Settings, table: tables.Table, rows: list[dict[str, Any]]) -> None:
    write_deltalake(str(table.path(settings)), pa.Table.from_pylist(rows, pa.schema(table.delta_schema().to_arrow())), mode="append")


def planned(settings: Settings, *lines: object, rule: str = "type_known", table: str | None = None) -> Plan:
    file = settings.home / "corrections.jsonl"
    file.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return plan(settings, rule, table, file if lines else None, corrections.read_file(file) if lines else [])


def redriven(settings: Settings, given: Plan, at: datetime, outcome: str) -> None:
    """What a re-drive of these corrections leaves behind."""
    corrections.append(settings, given.corrections, at)
    places = [dict(zip(corrections.PLACE, each.place, strict=True)) for each in given.corrections]
    common = {"table": "silver.transactions", "outcome": outcome, "is_corrected": True, "redriven_at": at}
    control.append(settings, tables.REDRIVES, [place | common for place in places])


@pytest.mark.parametrize(
    ("line", "told"),
    [
        pytest.param("{", "line 1: is no JSON", id="no JSON"),
        pytest.param("[1]", "line 1: found no JSON object", id="no object"),
        pytest.param("[" * 100_000, "line 1: found a value nested too deep", id="deep"),
        pytest.param(GOOD | {"values": 1}, "line 1: found field 'values', expected only", id="unknown field"),
        pytest.param(GOOD | {"who": " "}, "line 1: who: found no text", id="nobody"),
        pytest.param({name: text for name, text in GOOD.items() if name != "why"}, "line 1: why: found no text", id="no reason"),
        pytest.param(GOOD | {"why": "two\nlines"}, "line 1: why: found U+000A at character 4", id="two lines"),
        pytest.param(GOOD | {"offset": True}, "line 1: found no usable offset", id="true is no number"),
        pytest.param(GOOD | {"offset": 1.0}, "line 1: found no usable offset", id="no whole number"),
        pytest.param(GOOD | {"partition": -1}, "line 1: found no usable partition", id="below zero"),
        pytest.param(GOOD | {"value_base64": ""}, "line 1: found no value", id="two values"),
        pytest.param(GOOD | {"value": None}, "line 1: found no value", id="no value"),
        pytest.param(GOOD | {"value": "\ud800"}, "line 1: value cannot be read", id="half a character"),
        pytest.param(
            {name: text for name, text in GOOD.items() if name != "value"} | {"value_base64": "e"},
            "line 1: value_base64 cannot be read, expected Base64",
            id="no Base64",
        ),
        pytest.param('{"who": "Ada", "who": "Bob"}', "line 1: found a field twice", id="a field twice"),
        pytest.param(GOOD | {"offset": 0}, "transactions/0/0 is valid already, expected it in silver.transactions_quarantine", id="valid"),
        pytest.param(GOOD | {"offset": 3}, "transactions/0/3 is not judged yet", id="not judged"),
        pytest.param(GOOD | {"offset": 4}, "transactions/0/4 is not in bronze", id="nowhere"),
        pytest.param(GOOD | {"topic": "customers"}, "customers/0/1 is not in bronze", id="another topic"),
    ],
)
def test_a_file_with_an_unusable_line_is_refused_before_anything_is_written(settings: Settings, line: object, told: str) -> None:
    with pytest.raises(SettingsError) as refused:
        planned(settings, line, GOOD | {"offset": 2})
    assert told in str(refused.value)
    assert "secret" not in str(refused.value)
    assert "\n" not in str(refused.value)
    assert control.read(settings, tables.CORRECTIONS).num_rows == 0


def test_the_first_problems_are_listed_and_the_others_counted(settings: Settings) -> None:
    with pytest.raises(SettingsError, match=r"line 1: .*; line 5: [^;]*; and 2 more; nothing was written$"):
        planned(settings, *[GOOD | {"who": ""}] * 7)
    with pytest.raises(SettingsError, match=r"is not in bronze[^;]*; and 1 more; nothing was written$"):
        planned(settings, *(GOOD | {"offset": 10 + number} for number in range(6)))
    with pytest.raises(SettingsError, match=r"line 2: found transactions/0/1 twice"):
        planned(settings, GOOD, GOOD | {"value": "[]"})
    with pytest.raises(SettingsError, match="found no line"):
        planned(settings, "", " ")
    with pytest.raises(SettingsError, match="cannot be read"):
        corrections.read_file(settings.home)
    (settings.home / "latin").write_bytes(b"\xff")
    with pytest.raises(SettingsError, match="cannot be read"):
        corrections.read_file(settings.home / "latin")


def test_a_rule_is_known_from_the_present_set_or_from_one_that_was_used(settings: Settings) -> None:
    assert [topic.name for topic in planned(settings, rule="parseable").topics] == ["transactions", "customers", "accounts"]
    assert [topic.name for topic in planned(settings, rule="parseable", table="silver.accounts_quarantine").topics] == ["accounts"]
    assert [topic.name for topic in planned(settings, rule="older").topics] == ["transactions"]
    with pytest.raises(SettingsError, match=r"found rule 'typo', expected one of these: of silver.transactions parseable, .*, older; of"):
        planned(settings, rule="typo")
    with pytest.raises(SettingsError, match=r"found rule 'older', expected one of these: of silver.customers parseable"):
        planned(settings, rule="older", table="silver.customers")


def test_corrections_are_appended_once_and_the_newest_counts(settings: Settings) -> None:
    text, raw = GOOD | {"value": "ä"}, {name: text for name, text in GOOD.items() if name != "value"}
    for added, line in ((1, text), (0, text), (1, raw | {"value_base64": base64.b64encode(b"\xff").decode()}), (1, text)):
        assert corrections.append(settings, planned(settings, line).corrections, NOW) == added
    rows = control.read(settings, tables.CORRECTIONS).to_pylist()
    assert sorted(row["corrected_at"] for row in rows) == [NOW + timedelta(microseconds=number) for number in range(3)]
    assert {place: each.value for place, each in corrections.newest(settings).items()} == {("transactions", 0, 1): "ä".encode()}


def test_a_correction_is_in_effect_once_a_record_was_judged_good_by_it(settings: Settings) -> None:
    silver, place = tables.SILVER_TRANSACTIONS, ("transactions", 0, 1)
    corrections.append(settings, planned(settings, GOOD | {"value": "not driven"}).corrections, NOW)
    assert corrections.in_effect(settings, silver) == {}
    redriven(settings, planned(settings, GOOD | {"value": "bad"}), NOW + timedelta(1), "quarantine")
    assert corrections.in_effect(settings, silver) == {}
    redriven(settings, planned(settings, GOOD | {"value": "good"}), NOW + timedelta(2), "duplicates")
    assert corrections.in_effect(settings, silver) == {place: b"good"}
    assert corrections.in_effect(settings, tables.SILVER_CUSTOMERS) == {}


def test_a_file_that_was_used_before_is_no_mistake(settings: Settings) -> None:
    redriven(settings, planned(settings, GOOD), NOW, "transactions")
    quarantine = str(tables.TRANSACTIONS_QUARANTINE.path(settings))
    write_deltalake(quarantine, control.read(settings, tables.TRANSACTIONS_QUARANTINE).slice(0, 0), mode="overwrite")
    assert corrections.append(settings, planned(settings, GOOD).corrections, NOW) == 0
    with pytest.raises(SettingsError, match="valid already"):
        planned(settings, GOOD | {"why": "another reason"})


def test_nothing_is_halfway_where_nothing_was_driven(settings: Settings) -> None:
    redrives.refuse_halfway(settings)
