"""Row rules: what one row must keep, declared in rules/*.yaml and read by the silver job, the suites and the rules page."""

from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import yaml

from expectations.wire_format import WireSchema

FOLDER = Path(__file__).parent / "rules"
SEVERITIES = ("critical",)  # a row is kept or refused: the silver tables have no place for a row's warnings


class RuleError(ValueError):
    """A rules file cannot be used."""


@dataclass(frozen=True)
class Rule:
    """A rule: its name, the JSON field it speaks of, and what must hold (Spark SQL; null counts as broken).

    A row that breaks a rule of severity `critical` goes to quarantine. No other severity is known.
    """

    name: str
    field: str
    holds: str
    description: str
    severity: str = "critical"


@dataclass(frozen=True)
class RuleSet:
    """The rules of one topic, at a version, and their file's text. `parseable`, the first, is judged before all others.

    `schemas` are those of a schema registry by which values are read before they are judged.
    """

    topic: str
    version: str
    rules: tuple[Rule, ...]
    text: str = field(default="", repr=False)
    schemas: tuple[WireSchema, ...] = field(default=(), repr=False)

    @property
    def file(self) -> Path:
        """Where the topic's present rules are declared."""
        return FOLDER / f"{self.topic}.yaml"


@cache
def read_rules(topic: str) -> RuleSet:
    """The present rule set of a topic; raises RuleError, which names the file, when it cannot be used."""
    file = FOLDER / f"{topic}.yaml"
    try:
        return parse_rules(topic, file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RuleError(f"{file}: {error}") from None


def parse_rules(topic: str, text: str) -> RuleSet:
    """The rule set that a rules file's text declares; raises RuleError for what cannot be used."""
    try:
        content = yaml.safe_load(text)
        version, rules = content["version"], tuple(Rule(**rule) for rule in content["rules"])
    except (yaml.YAMLError, KeyError, TypeError) as error:
        first = " ".join(str(error).split())
        raise RuleError(f"found {type(error).__name__}: {first}, expected a version and rules of {', '.join(_FIELDS)}") from None
    if not isinstance(version, str) or not version:
        raise RuleError(f"found version {version!r}, expected a text in quotes")
    for rule in rules:
        if rule.severity not in SEVERITIES or not all(isinstance(getattr(rule, name), str) for name in _FIELDS):
            raise RuleError(f"found {rule}, expected texts, and severity {' or '.join(SEVERITIES)}")
    repeated = [name for name, count in Counter(rule.name for rule in rules).items() if count > 1]
    if not rules or repeated:
        raise RuleError(f"found {len(rules)} rules, {', '.join(repeated) or 'none'} more than once, expected each name once")
    return RuleSet(topic, version, rules, text)


_FIELDS = tuple(Rule.__dataclass_fields__)
