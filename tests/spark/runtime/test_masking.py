"""What Spark, Java and Arrow say of a value that they cannot read: it is in none of our logs."""

import logging
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession, functions as F

from spark_jobs import control
from spark_jobs.runtime.errors import first_line
from spark_jobs.runtime.masking import mask_error
from spark_jobs.runtime.session import LOG_SETTINGS

NAME = "Zdenka O'Novak"
PHONE = "367171684055.55"
IN_SPARK = [
    "cast(v as int)",
    "to_date(v, 'yyyy-MM-dd')",
    "cast(parse_json(concat('\"', v, '\"')) as int)",
    "parse_json(concat('{\"', v))",
    "cast(cast(n as decimal(30,2)) as decimal(5,2))",
    "map(v, 1, v, 2)",
    "raise_error(v)",
    "to_binary(v, 'hex')",
]
IN_ARROW = [
    "cast(v as int)",
    "to_timestamp(v)",
    "cast(v as boolean)",
    "cast(cast(n as decimal(30,2)) as decimal(5,2))",
    "cast(v as interval)",
]


def error_of(action: Callable[[], object]) -> Exception:
    with pytest.raises(Exception, match=r"(?i)zdenka|367171684055") as failure:  # or the case says nothing
        action()
    return failure.value


def is_clean(text: str) -> bool:
    return not any(part in text.lower() for part in ("zdenka", "novak", PHONE))


@pytest.mark.parametrize("expression", IN_SPARK)
def test_an_error_of_spark_quotes_no_value(spark: SparkSession, expression: str) -> None:
    rows = spark.createDataFrame([(NAME, PHONE)], "v string, n string").select(F.expr(expression))
    error = error_of(rows.collect)
    assert is_clean(mask_error(f"{type(error).__name__}: {error}"))
    assert is_clean(first_line(error))
    assert "[" in first_line(error)  # the condition is still named


@pytest.mark.parametrize("name", ["SQLQueryContextLogger", "DataFrameQueryContextLogger"])
def test_pyspark_does_not_write_errors_once_more(spark: SparkSession, name: str) -> None:
    assert not logging.getLogger(name).isEnabledFor(logging.ERROR)


def test_an_error_within_a_stream_keeps_its_stack_and_quotes_no_value(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows/1.txt").write_text(f"{NAME}\n")

    def process(rows: DataFrame, _: int) -> None:
        rows.select(F.col("value").cast("int")).collect()

    stream = spark.readStream.text(str(tmp_path / "rows")).writeStream.foreachBatch(process)
    query = stream.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    error = error_of(query.awaitTermination)
    text = mask_error(str(error))
    assert is_clean(text)
    assert "in process" in text
    assert "[CAST_INVALID_INPUT] (not shown: it may quote a value) SQLSTATE: 22018" in first_line(error)


@pytest.mark.parametrize("expression", IN_ARROW)
def test_an_error_of_arrow_quotes_no_value(tmp_path: Path, expression: str) -> None:
    write_deltalake(str(tmp_path), pa.table({"v": [NAME], "n": [PHONE]}))
    error = error_of(lambda: control.query(DeltaTable(str(tmp_path)), f"select {expression} from t"))
    assert is_clean(first_line(error))
    assert "Arrow error: " in first_line(error)


def test_what_spark_logs_itself_quotes_no_value(spark: SparkSession) -> None:
    jvm = spark._jvm
    assert jvm is not None
    settings = jvm.java.util.Properties()
    settings.load(jvm.java.io.FileReader(str(LOG_SETTINGS)))
    pattern = settings.getProperty("appender.console.layout.pattern")
    log4j = jvm.org.apache.logging.log4j
    layout = log4j.core.layout.PatternLayout.newBuilder().withPattern(pattern).build()
    for text in (
        f"[CAST_INVALID_INPUT] The value '{NAME}' of the type \"STRING\" cannot be cast. SQLSTATE: 22018",
        f"[MALFORMED_RECORD_IN_PARSING.WITHOUT_SUGGESTION] Malformed records: {NAME}.\nParse Mode: FAILFAST. SQLSTATE: 22023",
        f'For input string: "{NAME}"',
        f"Text '{NAME}' could not be parsed at index 0",
    ):
        message = log4j.message.SimpleMessage(f"Exception in task 0.0: {text}")
        builder = log4j.core.impl.Log4jLogEvent.newBuilder().setLoggerName("a.Executor").setLevel(log4j.Level.ERROR).setMessage(message)
        for event in (builder.build(), builder.setThrown(jvm.java.lang.RuntimeException(text)).build()):
            line = layout.toSerializable(event)
            assert is_clean(line), line
            assert "ERROR Executor: Exception in task 0.0: " in line
            assert "not shown" in line


def test_other_errors_are_told_as_they_are() -> None:
    for text in (
        "no broker: run make up",
        "[TABLE_OR_VIEW_NOT_FOUND] The table `x` cannot be found. SQLSTATE: 42P01",
        "found 'x', expected y",
    ):
        assert mask_error(text) == text
