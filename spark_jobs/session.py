"""The Spark session: one set of settings for every job, however it is started."""

import logging
import os
import sys
from typing import TYPE_CHECKING

from spark_jobs.settings import ROOT, Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JARS = ROOT / ".jars" / "spark"
LOG_SETTINGS = ROOT / "include" / "spark" / "log4j2.properties"
CLASS_ARCHIVE = ROOT / ".jars" / "spark-classes.jsa"


def submit_conf(settings: Settings) -> dict[str, str]:
    """What a driver must know before it starts, for `spark-submit --conf` as for a session that Python starts.

    The jars are put on the class path as they lie (no resolution, no copying). On a local master the driver
    listens on loopback only.
    """
    conf = {
        "spark.driver.memory": "1g",
        "spark.driver.extraClassPath": f"{JARS}/*",
        "spark.executor.extraClassPath": f"{JARS}/*",
        "spark.driver.extraJavaOptions": " ".join(_java_options()),
        "spark.executor.extraJavaOptions": "-Duser.timezone=UTC",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.variant.allowDuplicateKeys": "true",  # of a repeated name the last counts (contract, rule `parseable`)
        "spark.sql.shuffle.partitions": "4",
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.log.level": "ERROR",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.streaming.stopTimeout": "60s",
    }
    if settings.spark_master.startswith("local"):
        conf |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return conf


def _java_options() -> list[str]:
    """How the driver's JVM runs. On two cores a job of a minute spends most of it loading and compiling classes.

    So classes come from the archive that set-up makes (where it is missing or does not fit, the JVM does without), and are
    compiled once, by the quick compiler. Measured in include/docs/decisions/2026-11-21-jvm-starts.md.
    """
    archive = [f'-XX:SharedArchiveFile="{CLASS_ARCHIVE}"', "-Xshare:auto", "-Xlog:disable", "-Xlog:all=error:stderr"]
    return [
        "-Duser.timezone=UTC",
        f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}",
        "-XX:+ExitOnOutOfMemoryError",
        "-XX:TieredStopAtLevel=1",
        "-XX:ReservedCodeCacheSize=256m",
        *(archive if CLASS_ARCHIVE.exists() else ()),
    ]


def start_session(settings: Settings, name: str) -> "SparkSession":
    """The session of this process. Python workers run the driver's interpreter."""
    from pyspark.logger import PySparkLogger
    from pyspark.sql import SparkSession

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):  # they write every error once more, with its values
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.appName(name).master(settings.spark_master)
    return builder.config(map={**submit_conf(settings)}).getOrCreate()
