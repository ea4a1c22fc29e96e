"""A column costs its own calls of the JVM, and none that look for the class of a function or for the function."""

import pytest
from py4j.java_gateway import GatewayClient
from pyspark.sql import SparkSession, functions as F

_LOOKS = ("r\nu\n", "r\nm\n")  # py4j: for a class, and for a member of it


def test_what_is_known_is_not_looked_for_again(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    def columns() -> None:
        F.when(F.col("a") > 1, F.concat(F.col("a"), F.lit("b"))).otherwise(~F.col("c")).desc_nulls_last()
        F.coalesce("a", "b").isin("x", "y")

    columns()
    sent: list[str] = []
    old = GatewayClient.send_command

    def send(self: GatewayClient, command: str, *more: object, **named: object) -> object:
        sent.append(command)
        return old(self, command, *more, **named)

    monkeypatch.setattr(GatewayClient, "send_command", send)
    columns()
    assert [command for command in sent if command.startswith(_LOOKS)] == []
    assert sent
