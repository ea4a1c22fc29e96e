"""What the state of a live query depends on, recorded beside its checkpoint: Spark has no operator ids that would show it.

A change of anything in a fingerprint means that the state cannot be kept; what is not in it (a filter, an output column, a name) may
change. include/docs/live.md has the table.
"""

from collections.abc import Mapping
from typing import Any

from py4j.java_gateway import JavaObject
from pyspark.sql import DataFrame

from spark_jobs.live.declaration import LiveQuery
from spark_jobs.live.plans import find, items, optimized, walk
from spark_jobs.runtime.errors import SettingsError

Fingerprint = dict[str, Any]

_FORMAT = 1
_COMPUTED = "computed"
_STATEFUL = ("Deduplicate", "DeduplicateWithinWatermark", "FlatMapGroupsWithState", "TransformWithState", "TransformWithStateInPySpark")


def take(query: LiveQuery, frame: DataFrame, lateness_seconds: int) -> Fingerprint:
    """The fingerprint of a query as its code is now; `frame` is what it builds. Runs nothing.

    Of its operators as Spark's optimizer leaves them: a sum that is not written is not in the state, and the order of sums is that in which
    they are written.
    """
    return {
        "format": _FORMAT,
        "sources": list(query.sources),
        "meaning": dict(query.meaning),
        "lateness_seconds": lateness_seconds,
        "operators": [_describe(node) for node in walk(optimized(frame)) if _is_stateful(node)],
    }


def differences(recorded: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Why state of the recorded fingerprint cannot be used by the present code, a line each; empty where it can.

    A shorter allowed lateness keeps the state. With a longer one Spark would drop rows as late that are accepted now: its watermark
    never goes back; a query without operators drops none.
    """
    reasons = []
    for name, said in (("format", "the fingerprint"), ("sources", "the sources"), ("meaning", "the operation")):
        if recorded[name] != now[name]:
            reasons.append(f"{said}: found {_text(recorded[name])} in the state, {_text(now[name])} in the code")
    if recorded["operators"] and recorded["lateness_seconds"] < now["lateness_seconds"]:
        reasons.append(f"the allowed lateness: found {recorded['lateness_seconds']} s in the state, {now['lateness_seconds']} s is longer")
    if len(recorded["operators"]) != len(now["operators"]):
        reasons.append(
            f"the number of stateful operators: found {len(recorded['operators'])} in the state, {len(now['operators'])} in the code"
        )
    for number, (old, new) in enumerate(zip(recorded["operators"], now["operators"], strict=False)):
        for part in old.keys() | new.keys():
            if old.get(part) == new.get(part):
                continue
            if part == _COMPUTED:
                reasons.append(f"the keys of operator {number} are computed in another way, as by a window of another size")
            else:
                reasons.append(
                    f"{part} of operator {number}: found {_text(old.get(part))} in the state, {_text(new.get(part))} in the code"
                )
    return sorted(reasons)


def check(present: Mapping[str, Fingerprint], recorded: Mapping[str, Fingerprint], savepoint: str = "") -> None:
    """Refuse states that the present code cannot continue; both are by query, and a query that only one of them has is left out.

    Raises SettingsError that names every difference; `savepoint` is whose states they are, if not those in use.
    """
    wrong: dict[str, list[str]] = {}
    for name, known in recorded.items():
        if name in present and (reasons := differences(known, present[name])):
            wrong.setdefault("; ".join(reasons), []).append(name)
    if wrong:
        names = [name for each in wrong.values() for name in each]
        found = ". ".join(f"live {', '.join(each)}: its state cannot be kept: {why}" for why, each in wrong.items())
        rebuild = f"rebuild {'their tables' if len(names) > 1 else 'its table'} with run upgrade --mode stateless --query {' '.join(names)}"
        remedy = f"restore {savepoint} with the code that wrote it" if savepoint else f"{rebuild}, or start the code that wrote the state"
        raise SettingsError(f"{found}. Expected the same in the code: {remedy}")


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {of}" for name, of in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _describe(node: JavaObject) -> dict[str, Any]:
    name = node.nodeName()
    if name == "Aggregate":
        keys = [_column(key) for key in items(node.groupingExpressions())]
        computed = sorted(_computations(node))
        values = [_sql(found) for value in items(node.aggregateExpressions()) for found in find(value, "AggregateExpression")]
        return {"operator": name, "keys": keys, _COMPUTED: computed, "values": list(dict.fromkeys(values))}
    if name == "Join":
        sides = {side: [_column(column) for column in items(getattr(node, side)().output())] for side in ("left", "right")}
        return {"operator": f"{name} {node.joinType().sql()}", "condition": node.condition().get().sql(), **sides}
    if name == "TransformWithStateInPySpark":  # its input begins with the keys; its state is Python's, which the query's meaning names
        keys = items(node.left().output())[: node.groupingAttributesLen()]
        return {"operator": name, "keys": [_column(key) for key in keys], "time": str(node.timeMode())}
    return {"operator": name, "keys": [_column(key) for key in items(node.keys())]}


def _computations(aggregate: JavaObject) -> set[str]:
    """The SQL of all that is computed below an aggregate for its keys: a window is, with its size, slide or gap."""
    made: dict[int, list[JavaObject]] = {}
    for node in walk(aggregate):
        if node.nodeName() == "Project":
            for column in items(node.projectList()):
                if column.nodeName() == "Alias":
                    made.setdefault(column.exprId().id(), []).append(column.child())
        elif node.nodeName() == "Expand":
            for number, column in enumerate(items(node.output())):
                made.setdefault(column.exprId().id(), []).extend(each.apply(number) for each in items(node.projections()))
    found: set[str] = set()
    waiting = items(aggregate.groupingExpressions())
    seen: set[int] = set()
    while waiting:
        for column in find(waiting.pop(), "AttributeReference"):
            if (key := column.exprId().id()) not in seen:
                seen.add(key)
                waiting += made.get(key, [])
                found |= {_sql(each) for each in made.get(key, []) if each.nodeName() != "AttributeReference"}
    return found


def _sql(expression: JavaObject) -> str:
    """An expression of one stream in SQL, whose columns do not say by which name the stream goes in a query."""
    text: str = expression.sql()
    for column in find(expression, "AttributeReference"):
        text = text.replace(column.sql(), column.name())
    return text


def _is_stateful(node: JavaObject) -> bool:
    name = node.nodeName()
    if name == "Join":
        return all(side.isStreaming() for side in items(node.children()))
    return bool(node.isStreaming()) and (name == "Aggregate" or name in _STATEFUL)


def _column(expression: JavaObject) -> str:
    return f"{expression.name()} {expression.dataType().sql()}"
