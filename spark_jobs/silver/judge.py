"""Judging rows: each keeps all the rules of its set, or goes to quarantine with every rule it breaks."""

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, functions as F

from expectations.row_rules import Rule, RuleSet

_LONGEST_DETAIL = 200
_BETWEEN = "\x1f"  # that YAML does not let into a rule's name as it is


def judge(parsed: DataFrame, rules: RuleSet) -> DataFrame:
    """Add `broken_rules`: the names of all rules that the row breaks, in the set's order; empty for a valid row.

    A row that breaks the first rule (`parseable`) is judged by no other.
    """
    parseable, *others = rules.rules
    # Generated code has no functions of arrays with conditions in them.
    broken = F.split(F.concat_ws(_BETWEEN, *(F.when(~_holds(rule), F.lit(rule.name)) for rule in others)), _BETWEEN)
    named = (
        F.when(keeps_all(rules), F.array().cast("array<string>")).when(_holds(parseable), broken).otherwise(F.array(F.lit(parseable.name)))
    )
    return parsed.withColumn("broken_rules", named.cast("array<string>"))


def keeps_all(rules: RuleSet) -> Column:
    """Whether a parsed row keeps all rules of a set."""
    return reduce(Column.__and__, map(_holds, rules.rules))


def is_valid() -> Column:
    """True for a judged row that breaks no rule."""
    return F.size("broken_rules") == 0


def detail(rules: RuleSet, fields: Sequence[str]) -> Column:
    """What was found, rule by rule, in a judged row that breaks some; null for a valid row.

    Names fields that the topic does not have, too (`fields` are those it has). At most 200 characters of a value.
    """
    found = [
        F.when(
            F.array_contains("broken_rules", rule.name),
            F.concat(F.lit(f"{rule.name}: found "), _found(rule, fields)),
        )
        for rule in rules.rules
    ]
    unknown = F.array_except(F.json_object_keys("_text"), F.array(*map(F.lit, fields)))
    extra = F.when(
        F.col("is_json_object") & (F.size(unknown) > 0),
        F.concat(F.lit("unknown fields: "), F.substring(F.concat_ws(", ", unknown), 1, _LONGEST_DETAIL)),
    )
    return F.when(~is_valid(), F.concat_ws("; ", *found, extra))


def _holds(rule: Rule) -> Column:
    return F.coalesce(F.expr(rule.holds), F.lit(False))


def _found(rule: Rule, fields: Sequence[str]) -> Column:
    if rule.field in fields:
        field = F.col(rule.field)
        text = F.concat(field["kind"], F.lit(" "), F.substring(field["text"], 1, _LONGEST_DETAIL))
        return F.coalesce(text, field["kind"], F.lit("nothing"))
    size = F.length(F.col(rule.field))
    return F.coalesce(F.concat(size.cast("string"), F.lit(f" bytes of {rule.field}")), F.lit(f"no {rule.field}"))
