"""Judging rows: each keeps all the rules of its set, or goes to quarantine with every rule it breaks."""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, functions as F

from expectations.row_rules import Rule, RuleSet
from spark_jobs.runtime.text import spark_text

_LONGEST_DETAIL = 200
IS_VALID = "size(broken_rules) = 0"
_BETWEEN = "'\x1f'"  # that YAML does not let into a rule's name as it is


def judge(parsed: DataFrame, rules: RuleSet) -> DataFrame:
    """Add `broken_rules`: the names of all rules that the row breaks, in the set's order; empty for a valid row.

    A row that breaks the first rule (`parseable`) is judged by no other.
    """
    names, holds = [spark_text(rule.name) for rule in rules.rules], [_holds(rule) for rule in rules.rules]
    # Generated code has no functions of arrays with conditions in them.
    broken = (f"case when not {text} then {name} end" for name, text in zip(names[1:], holds[1:], strict=True))
    named = f"""case
        when {" and ".join(holds)} then array()
        when {holds[0]} then split(concat_ws({", ".join([_BETWEEN, *broken])}), {_BETWEEN})
        else array({names[0]})
    end"""
    return parsed.withColumn("broken_rules", F.expr(f"cast({named} as array<string>)"))


def keeps_all(rules: RuleSet) -> Column:
    """Whether a parsed row keeps all rules of a set."""
    return F.expr(" and ".join(map(_holds, rules.rules)))


def is_valid() -> Column:
    """True for a judged row that breaks no rule."""
    return F.expr(IS_VALID)


def detail(rules: RuleSet, fields: Sequence[str]) -> Column:
    """What was found, rule by rule, in a judged row that breaks some; null for a valid row.

    Names fields that the topic does not have, too (`fields` are those it has). At most 200 characters of a value.
    """
    found = [
        f"case when array_contains(broken_rules, {spark_text(rule.name)})"
        f" then concat({spark_text(f'{rule.name}: found ')}, {_found(rule, fields)}) end"
        for rule in rules.rules
    ]
    unknown = f"array_except(json_object_keys(_text), array({', '.join(map(spark_text, fields))}))"
    extra = f"concat('unknown fields: ', substring(concat_ws(', ', {unknown}), 1, {_LONGEST_DETAIL}))"
    found.append(f"case when is_json_object and size({unknown}) > 0 then {extra} end")
    return F.expr(f"case when not {IS_VALID} then concat_ws('; ', {', '.join(found)}) end")


def _holds(rule: Rule) -> str:
    F.expr(rule.holds)  # refuses what is no expression by itself
    return f"coalesce(({rule.holds}\n), false)"


def _found(rule: Rule, fields: Sequence[str]) -> str:
    field = f"`{rule.field}`"
    if rule.field in fields:
        text = f"concat({field}.kind, ' ', substring({field}.text, 1, {_LONGEST_DETAIL}))"
        return f"coalesce({text}, {field}.kind, 'nothing')"
    size = f"concat(cast(length({field}) as string), {spark_text(f' bytes of {rule.field}')})"
    return f"coalesce({size}, {spark_text(f'no {rule.field}')})"
