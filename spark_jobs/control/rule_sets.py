"""The registry of row rules: control.rule_sets keeps the text of every rule set that was ever used, by topic and version.

Part of a rule set are the schemas by which values are read (expectations/wire_format.py). They come one by one, in the order that
control.registry_schemas gives them for each topic: version `2+3` are the rules of version 2, with the first three.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from expectations.row_rules import RuleError, RuleSet, parse_rules, read_rules
from expectations.wire_format import WireSchema
from spark_jobs import control
from spark_jobs.lake import leases
from spark_jobs.lake.tables import BATCHES, REGISTRY_SCHEMAS, RULE_SETS, Table
from spark_jobs.lake.txn import Txn
from spark_jobs.runtime.errors import LedgerError, SettingsError
from spark_jobs.runtime.settings import Settings


@dataclass(frozen=True)
class Begun:
    """Batches of a silver table, up to `last`, that a run began to write and did not finish, and the rules by which it judged them."""

    last: int
    rules: RuleSet


def register(settings: Settings, topics: Iterable[str]) -> None:
    """Keep the texts of the topics' present rules, where they are used for the first time.

    Raises SettingsError, and keeps none, when a rules file cannot be used, or its version was used before with another text.
    """
    try:
        rule_sets = [read_rules(topic) for topic in topics]
    except RuleError as error:
        raise SettingsError(str(error)) from None
    known = _texts(settings)
    new = [rules for rules in rule_sets if (rules.topic, rules.version) not in known]
    for rules in rule_sets:
        if "+" in rules.version:
            raise SettingsError(f"{rules.file}: found version {rules.version!r}, expected one without +, which joins schemas to a version")
        if known.get((rules.topic, rules.version), rules.text) != rules.text:
            raise SettingsError(
                f"{rules.file}: found version {rules.version!r} with another text than it was used with before, "
                "expected a new version for every change: raise `version` in the file, or put its text back"
            )
    if new:
        now = datetime.now(UTC)
        rows = [{"topic": rules.topic, "version": rules.version, "text": rules.text, "recorded_at": now} for rules in new]
        control.append(settings, RULE_SETS, rows)


def present(settings: Settings, topic: str) -> RuleSet:
    """The rules of a topic's file, with all schemas of it that are on record."""
    return _with_schemas(read_rules(topic), schemas(settings, topic))


def schemas(settings: Settings, topic: str) -> tuple[WireSchema, ...]:
    """The schemas of a topic, in the order in which they were recorded."""
    rows = [row for row in control.read(settings, REGISTRY_SCHEMAS).to_pylist() if row["topic"] == topic]
    rows.sort(key=lambda row: int(row["number"]))
    return tuple(WireSchema(row["schema_id"], row["kind"], row["schema"], tuple(row["references"])) for row in rows)


def record_schemas(settings: Settings, topic: str, new: Iterable[WireSchema]) -> None:
    """Put schemas on record for a topic, after those that are there; one that is there already stays as it is."""
    with leases.hold(settings, [REGISTRY_SCHEMAS], owner=f"schemas of {topic}", wait_seconds=leases.WAIT_SECONDS):
        known = schemas(settings, topic)
        missing = [schema for schema in new if schema.id not in {each.id for each in known}]
        now = datetime.now(UTC)
        rows = [
            {"topic": topic, "number": number, "schema_id": each.id, "kind": each.kind, "schema": each.text}
            | {"references": list(each.references), "recorded_at": now}
            for number, each in enumerate(missing, start=len(known) + 1)
        ]
        if rows:
            control.append_under_lease(settings, REGISTRY_SCHEMAS, rows)


def recorded(settings: Settings, topic: str, version: str) -> RuleSet:
    """The rules of a topic as they were at a version, to judge a batch again as it was judged."""
    texts = _texts(settings)
    if (topic, version) in texts:
        return parse_rules(topic, texts[topic, version])
    of_file, _, count = version.partition("+")
    known = schemas(settings, topic)
    if (topic, of_file) not in texts or not count.isdigit() or int(count) > len(known):
        raise LedgerError(
            f"found no rules of {topic} at version {version!r} in {RULE_SETS.name} and {REGISTRY_SCHEMAS.name}, "
            "expected those that its batches name"
        )
    return _with_schemas(parse_rules(topic, texts[topic, of_file]), known[: int(count)])


def begin(settings: Settings, txn: Txn, table: Table, rules: RuleSet) -> None:
    """Note, before the first write, by which rules the batches of a silver table were judged, up to the one that `txn` names.

    The note is a transaction identifier in a commit of control.batches that brings no row.
    """
    control.append(settings, BATCHES, [], once=Txn(_mark(txn.application, table, rules.version), txn.version))


def begun(settings: Settings, application: str, topic: str, table: Table) -> Begun | None:
    """What a run of this application has begun and never recorded in control.batches: it is repeated by the rules of that run."""
    delta, done = BATCHES.open(settings), control.last_batch(settings, "silver", table.name)
    of_files = [version for of, version in _texts(settings) if of == topic]
    counts = ["", *(f"+{count}" for count in range(1, len(schemas(settings, topic)) + 1))]
    for version in (f"{of_file}{count}" for of_file in of_files for count in counts):
        last = delta.transaction_version(_mark(application, table, version))
        if last is not None and last > done:  # no more than one: a later run repeats it before it begins another
            return Begun(last, recorded(settings, topic, version))
    return None


def rule_names(settings: Settings, topic: str) -> list[str]:
    """The names of a topic's present rules, in their order, and after them those of older sets that were ever used.

    Raises SettingsError when the present rules file cannot be used.
    """
    try:
        names = [rule.name for rule in read_rules(topic).rules]
    except RuleError as error:
        raise SettingsError(str(error)) from None
    texts = sorted(text for (of, _), text in _texts(settings).items() if of == topic)
    return list(dict.fromkeys([*names, *(rule.name for text in texts for rule in parse_rules(topic, text).rules)]))


def _with_schemas(rules: RuleSet, known: tuple[WireSchema, ...]) -> RuleSet:
    return replace(rules, version=f"{rules.version}+{len(known)}", schemas=known) if known else rules


def _mark(application: str, table: Table, version: str) -> str:
    return f"{application}/{table.name} by rules {version}"


def _texts(settings: Settings) -> dict[tuple[str, str], str]:
    return {(row["topic"], row["version"]): row["text"] for row in control.read(settings, RULE_SETS).to_pylist()}
