"""Row rules: what one row must keep, declared in rules/*.yaml and read by the silver job, the suites and the rules page."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

FOLDER = Path(__file__).parent / "rules"


@dataclass(frozen=True)
class Rule:
    """A rule: its name, the JSON field it speaks of, and what must hold (Spark SQL; null counts as broken)."""

    name: str
    field: str
    holds: str
    description: str


@dataclass(frozen=True)
class RuleSet:
    """The rules of one topic, at a version. `parseable`, the first, is judged before all others."""

    topic: str
    version: str
    rules: tuple[Rule, ...]


@cache
def read_rules(topic: str) -> RuleSet:
    """The rule set of a topic."""
    text = yaml.safe_load((FOLDER / f"{topic}.yaml").read_text())
    return RuleSet(topic, text["version"], tuple(Rule(**rule) for rule in text["rules"]))
