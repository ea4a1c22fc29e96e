"""A column costs its own calls of the JVM, and none that look for the class of a function or for the function."""

import pytest
from py4j.java_gateway import GatewayClient
from pyspark.sql import SparkSession, functions as F

_LOOKS = ("r\nu\n", "r\nm\n")  # py4j: for a class, and for a member of it


def sent_commands(patch: pytest.MonkeyPatch) -> list[str]:
    """What goes to the JVM from now on."""
    sent: list[str] = []
    old = GatewayClient.send_command

    def send(self: GatewayClient, command: str, *more: object, **named: object) -> object:
        sent.append(command)
        return old(self, command, *more, **named)

    patch.setattr(GatewayClient, "send_command", send)
    return sent


def test_what_is_known_is_not_looked_for_again(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    def columns() -> None:
        F.when(F.col("a") > 1, F.concat(F.col("a"), F.lit("b"))).otherwise(~F.col("c")).desc_nulls_last()
        F.coalesce("a", "b").isin("x", "y")

    columns()
    sent = sent_commands(monkeypatch)
    columns()
    assert [command for command in sent if command.startswith(_LOOKS)] == []
    assert sent


def test_lists_go_over_whole_whatever_they_hold(spark: SparkSession) -> None:
    names = [f"c{number}" for number in range(25)]
    whole = spark.range(1).selectExpr(*(f"id as {name}" for name in names))
    for count in (1, 10, 11, 20, 25):
        assert whole.select(*names[:count]).columns == names[:count]
        assert whole.selectExpr(*names[:count]).columns == names[:count]
    assert whole.select([]).columns == []
    assert [row.n for row in spark.range(3).select(F.col("id").isin([0, 2]).alias("n")).collect()] == [True, False, True]
    jvm = spark._jvm
    assert list(jvm.PythonUtils.toSeq([1, None, "b"]).mkString(",").split(",")) == ["1", "null", "b"]  # type: ignore[union-attr]
    assert jvm.java.util.ArrayList([["a", "b"], [1.5]]).toString() == "[[a, b], [1.5]]"  # type: ignore[union-attr]
    assert jvm.java.util.ArrayList(()).size() == 0  # type: ignore[union-attr]


def test_a_list_costs_one_call_for_ten_items(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = spark.range(1)
    sent = sent_commands(monkeypatch)
    rows.selectExpr(*(f"id as c{number}" for number in range(10)))
    calls = [command for command in sent if command.startswith("c\n")]
    assert len(calls) == 3, calls  # the list, its Seq, selectExpr
