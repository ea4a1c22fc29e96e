"""Classes of the JVM that PySpark asks for with each column: found once.

PySpark looks a class up by its name whenever it calls a function, and the function by its own. A short name is looked for in eleven
packages, each time through all jars: this took as long as the calls themselves.
"""

from typing import Any

from py4j.java_gateway import JavaClass, JavaMember, JVMView

_NAMES = ("org.apache.spark.sql.functions", "functions", "PythonUtils", "PythonSQLUtils")


class _KnownClass(JavaClass):  # type: ignore[misc]  # a library without types
    """A class whose static methods are asked for once each."""

    def __getattr__(self, name: str) -> Any:
        member = super().__getattr__(name)
        if isinstance(member, JavaMember):  # the value of a field may change
            self.__dict__[name] = member
        return member


def keep(jvm: JVMView) -> None:
    """Let a view of the JVM know these classes by the names that PySpark uses."""
    for name in _NAMES:
        if not isinstance(jvm.__dict__.get(name), _KnownClass):
            setattr(jvm, name, _KnownClass(getattr(jvm, name)._fqn, jvm._gateway_client))
