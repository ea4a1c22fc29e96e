"""Rules files: what is refused, and the registry of every text that was ever used."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from expectations import row_rules
from expectations.row_rules import FOLDER, RuleError, parse_rules, read_rules
from expectations.wire_format import WireSchema
from spark_jobs import control
from spark_jobs.control import rule_sets
from spark_jobs.lake import tables
from spark_jobs.lake.txn import Txn
from spark_jobs.runtime.errors import LedgerError, SettingsError
from spark_jobs.runtime.settings import Settings, read_settings

TOPICS = [table.topic for table in tables.BRONZE]
GOOD = """
version: "1"
rules:
  - {name: parseable, field: value, holds: is_json_object, severity: critical, description: An object.}
  - {name: other, field: value, holds: "true", severity: critical, description: Anything.}
"""


@pytest.fixture
def home(tmp_path: Path) -> Settings:
    return read_settings({"LEDGER_HOME": str(tmp_path / "home")})


@pytest.fixture
def rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A rules file of its own for the topic accounts, which may be changed."""
    monkeypatch.setattr(row_rules, "FOLDER", tmp_path)
    file = tmp_path / "accounts.yaml"
    file.write_text(GOOD)
    read_rules.cache_clear()
    yield file
    read_rules.cache_clear()


SCHEMAS = tuple(WireSchema(number, "JSON", "{}") for number in (7, 3, 9))


def put(file: Path, text: str) -> None:
    file.write_text(text)
    read_rules.cache_clear()


@pytest.mark.parametrize("topic", TOPICS)
def test_every_rule_says_where_a_row_that_breaks_it_goes(topic: str) -> None:
    text = (FOLDER / f"{topic}.yaml").read_text()
    rules = parse_rules(topic, text).rules
    assert rules[0].name == "parseable"
    assert text.count("severity: critical") == len(rules) == text.count("- name: ")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "TypeError"),
        ("a: [", "ParserError"),
        ("version: 1\nrules: []", "found version 1, expected a text in quotes"),
        ('version: "1"\nrules: []', "found 0 rules"),
        ("rules: []", "KeyError: 'version'"),
        (GOOD.replace("name: other", "name: parseable"), "parseable more than once"),
        (GOOD.replace("severity: critical, description: Any", "severity: warning, description: Any"), "and severity critical"),
        (GOOD.replace("field: value, holds: is_json_object", "holds: is_json_object"), "missing 1 required positional argument: 'field'"),
        (GOOD.replace("name: other", "name: other, more: 1"), "unexpected keyword argument 'more'"),
        (GOOD.replace('"true"', "true"), "holds=True"),
    ],
)
def test_rules_that_cannot_be_used_are_refused(text: str, found: str) -> None:
    with pytest.raises(RuleError, match=found.replace("(", r"\(")):
        parse_rules("accounts", text)


def test_a_text_is_kept_once_and_may_not_change_under_its_version(home: Settings, rules: Path) -> None:
    for _ in range(2):
        rule_sets.register(home, ["accounts"])
    assert [(row["topic"], row["version"], row["text"]) for row in control.read(home, tables.RULE_SETS).to_pylist()] == [
        ("accounts", "1", GOOD)
    ]

    changed = GOOD.replace('"true"', '"false"')
    put(rules, changed)
    with pytest.raises(SettingsError, match=r"accounts\.yaml: found version '1' with another text .* raise `version`"):
        rule_sets.register(home, ["accounts"])
    assert rule_sets.recorded(home, "accounts", "1").rules[1].holds == "true"

    put(rules, changed.replace('"1"', '"2"'))
    rule_sets.register(home, ["accounts"])
    assert [rule_sets.recorded(home, "accounts", version).rules[1].holds for version in ("1", "2")] == ["true", "false"]
    put(rules, GOOD)  # back to the first: it is known
    rule_sets.register(home, ["accounts"])
    assert control.read(home, tables.RULE_SETS).num_rows == 2
    with pytest.raises(LedgerError, match=r"found no rules of accounts at version '3'"):
        rule_sets.recorded(home, "accounts", "3")


def test_a_file_that_cannot_be_used_is_a_matter_of_settings(home: Settings, rules: Path) -> None:
    put(rules, "version: 1")
    with pytest.raises(SettingsError, match=r"accounts\.yaml: found KeyError: 'rules'"):
        rule_sets.register(home, ["accounts"])
    rules.unlink()
    read_rules.cache_clear()
    with pytest.raises(SettingsError, match=r"accounts\.yaml: .*No such file"):
        rule_sets.register(home, ["accounts"])


def test_what_a_run_began_and_did_not_record_keeps_its_rules(home: Settings, rules: Path) -> None:
    """Of its generation, table and topic only. Rules may come in force again."""

    def begun(application: str = "silver", table: tables.Table = tables.SILVER_ACCOUNTS) -> tuple[int, str] | None:
        found = rule_sets.begun(home, application, "accounts", table)
        return (found.last, found.rules.version) if found else None

    def record(last: int) -> None:
        control.append(home, tables.BATCHES, [{"job": "silver", "table": "silver.accounts", "first_batch": last, "last_batch": last}])

    record(1)
    assert begun() is None
    for last, version in ((4, "1"), (6, "2"), (7, "1")):
        put(rules, GOOD.replace('"1"', f'"{version}"'))
        rule_sets.register(home, ["accounts"])
        for batch in (last, last - 1):  # a repetition may take fewer batches at once
            rule_sets.begin(home, Txn("silver", batch), tables.SILVER_ACCOUNTS, read_rules("accounts"))
        assert begun() == (last, version)
        assert (begun("silver/2"), begun(table=tables.SILVER_CUSTOMERS)) == (None, None)
        record(last - 1)
        assert begun() == (last, version)
        record(last)
        assert begun() is None
    assert control.read(home, tables.BATCHES).num_rows == 7


def test_schemas_are_part_of_a_version_in_the_order_in_which_they_came(home: Settings, rules: Path) -> None:
    """A batch that was judged before a schema was known is judged again without it."""
    rule_sets.register(home, ["accounts"])
    assert rule_sets.present(home, "accounts").version == "1"
    rule_sets.record_schemas(home, "accounts", SCHEMAS[:2])
    rule_sets.record_schemas(home, "accounts", [*SCHEMAS[:2], WireSchema(7, "AVRO", "another text")])  # what is recorded stays
    rule_sets.record_schemas(home, "transactions", SCHEMAS[1:])
    rule_sets.record_schemas(home, "accounts", SCHEMAS)
    assert rule_sets.schemas(home, "accounts") == SCHEMAS
    assert rule_sets.schemas(home, "transactions") == SCHEMAS[1:]
    put(rules, GOOD.replace('"1"', '"2"'))
    assert (rule_sets.present(home, "accounts").version, rule_sets.present(home, "accounts").schemas) == ("2+3", SCHEMAS)
    rule_sets.register(home, ["accounts"])
    for version, expected in (("1", ()), ("1+1", SCHEMAS[:1]), ("2+3", SCHEMAS)):
        found = rule_sets.recorded(home, "accounts", version)
        assert (found.version, found.schemas) == (version, expected)
    with pytest.raises(LedgerError, match=r"no rules of accounts at version '1\+4' in control.rule_sets and control.registry_schemas"):
        rule_sets.recorded(home, "accounts", "1+4")


def test_a_batch_that_was_begun_with_schemas_is_repeated_with_those(home: Settings, rules: Path) -> None:
    tables.ensure_tables(home, tables.CONTROL)
    rule_sets.register(home, ["accounts"])
    rule_sets.record_schemas(home, "accounts", SCHEMAS[:1])
    rule_sets.begin(home, Txn("silver", 4), tables.SILVER_ACCOUNTS, rule_sets.present(home, "accounts"))
    rule_sets.record_schemas(home, "accounts", SCHEMAS)
    found = rule_sets.begun(home, "silver", "accounts", tables.SILVER_ACCOUNTS)
    assert found
    assert (found.last, found.rules.version, found.rules.schemas) == (4, "1+1", SCHEMAS[:1])


def test_a_version_with_the_sign_that_joins_schemas_to_it_is_refused(home: Settings, rules: Path) -> None:
    put(rules, GOOD.replace('"1"', '"1+2"'))
    with pytest.raises(SettingsError, match=r"found version '1\+2', expected one without \+"):
        rule_sets.register(home, ["accounts"])
    row = {"topic": "accounts", "version": "1+2", "text": rules.read_text(), "recorded_at": datetime.now(UTC)}
    control.append(home, tables.RULE_SETS, [row])  # of a time when it was none
    assert rule_sets.recorded(home, "accounts", "1+2").schemas == ()
