"""Fewer calls of the JVM: classes that PySpark asks for with each column are found once, and lists go over in few calls.

PySpark looks a class up by its name whenever it calls a function, and the function by its own. A short name is looked for in eleven
packages, each time through all jars: this took as long as the calls themselves. Py4J makes an empty list, and adds item by item.
"""

from collections.abc import Sequence
from typing import Any

from py4j.java_collections import ListConverter
from py4j.java_gateway import GatewayClient, JavaClass, JavaMember, JavaObject, JVMView
from py4j.protocol import INPUT_CONVERTER, STATIC_PREFIX, register_input_converter

DATASET = "org.apache.spark.sql.classic.Dataset"
_NAMES = (
    *("functions", "PythonUtils", "PythonSQLUtils", DATASET, "org.apache.spark.sql.classic.SparkSession"),
    *("org.apache.spark.sql.functions", "org.apache.spark.sql.expressions.Window"),
)
_AT_ONCE = 10  # items that List.of takes


class _KnownClass(JavaClass):  # type: ignore[misc]  # a library without types
    """A class whose static methods are asked for once each."""

    def __getattr__(self, name: str) -> Any:
        member = super().__getattr__(name)
        if isinstance(member, JavaMember):  # the value of a field may change
            self.__dict__[name] = member
        return member


class _Lists(ListConverter):  # type: ignore[misc]  # a library without types
    """Makes a list of the JVM in one call for ten items."""

    def can_convert(self, items: object) -> bool:
        """Whether these are items that List.of takes."""
        return isinstance(items, list | tuple) and all(item is not None for item in items)

    def convert(self, items: Sequence[Any], client: GatewayClient) -> JavaObject:
        """The list; one of up to ten items cannot be changed."""
        of = JavaMember("of", None, f"{STATIC_PREFIX}java.util.List", client)
        first, *others = (of(*items[start : start + _AT_ONCE]) for start in range(0, max(len(items), 1), _AT_ONCE))
        if not others:
            return first
        whole = JavaClass("java.util.ArrayList", client)(first)
        for part in others:
            whole.addAll(part)
        return whole


def keep(jvm: JVMView) -> None:
    """Let a view of the JVM know these classes by the names that PySpark uses, and Py4J make lists in few calls."""
    if not any(isinstance(converter, _Lists) for converter in INPUT_CONVERTER):
        register_input_converter(_Lists(), prepend=True)
    for name in _NAMES:
        if not isinstance(jvm.__dict__.get(name), _KnownClass):
            setattr(jvm, name, _KnownClass(getattr(jvm, name)._fqn, jvm._gateway_client))
