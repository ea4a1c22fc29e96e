"""Spark's logical plans, node by node."""

from collections.abc import Callable, Iterator

from py4j.java_gateway import JavaObject
from pyspark.sql import DataFrame


def optimized(frame: DataFrame) -> JavaObject:
    """The plan of a frame, which may be a stream, as Spark's optimizer leaves it."""
    execution = frame._jdf.queryExecution()
    plan: JavaObject = execution.sparkSession().sessionState().optimizer().execute(execution.analyzed())
    return plan  # its own optimizedPlan() refuses streams


def walk(node: JavaObject) -> Iterator[JavaObject]:
    """A node of a plan or an expression, and all below it."""
    yield node
    for child in items(node.children()):
        yield from walk(child)


def find(expression: JavaObject, name: str) -> Iterator[JavaObject]:
    """The parts of an expression that have a name."""
    yield from (found for found in walk(expression) if found.nodeName() == name)


def items(sequence: JavaObject) -> list[JavaObject]:
    """A sequence of Scala as a list."""
    get: Callable[[int], JavaObject] = sequence.apply
    return [get(number) for number in range(sequence.size())]
