"""The Spark session: one set of settings for every job, however it is started."""

import atexit
import json
import logging
import os
import re
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from spark_jobs.runtime import engine, progress, scratch, storage
from spark_jobs.runtime.atomic_files import write_whole
from spark_jobs.runtime.errors import SettingsError
from spark_jobs.runtime.private import UMASK
from spark_jobs.runtime.settings import CLUSTER_SECRET, ROOT, Settings, cluster_secret
from spark_jobs.runtime.storage import s3_access

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

JARS = ROOT / ".jars" / "spark"
S3_JARS = ROOT / ".jars" / "s3"
LOG_SETTINGS = ROOT / "include" / "spark" / "log4j2.properties"
RPC = {  # as in include/spark/cluster.conf: a client of any of Spark's ports must know the secret
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    "spark.network.crypto.saslFallback": "false",
    "spark.network.crypto.authEngineVersion": "2",
    "spark.network.crypto.cipher": "AES/GCM/NoPadding",
}
# Few rows are computed before a plan is made again between its stages, and before code for them is generated and compiled.
FEW_ROWS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
SMALL_PLANS = FEW_ROWS | {"spark.sql.shuffle.partitions": "1"}
# Of more rows that a process holds, code is worth its while.
HELD_PLANS = {"spark.sql.adaptive.enabled": "false", "spark.sql.shuffle.partitions": "2"}
# On local folders Spark's own choice runs `readlink` as a process for each file of a checkpoint, 28 times in a batch of a small query.
CHECKPOINT_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
# Spark's own metrics beside its pages, at /metrics/prometheus; without the namespace every series would hold the application's id.
SERVLET = {
    "spark.metrics.conf.*.sink.prometheusServlet.class": "org.apache.spark.metrics.sink.PrometheusServlet",
    "spark.metrics.conf.*.sink.prometheusServlet.path": "/metrics/prometheus",
    "spark.metrics.namespace": "spark",
    "spark.sql.streaming.metricsEnabled": "true",
}
# In object storage a file appears when it is whole: a renamed one would be copied.
REMOTE_CHECKPOINT_FILES = "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager"
# When the slow compiler takes a method: after 20 times as many calls, and 10 times as many rounds of a loop, as the JVM's own choice.
_SLOW_COMPILER = (
    "-XX:Tier4InvocationThreshold=100000",
    "-XX:Tier4MinInvocationThreshold=12000",
    "-XX:Tier4CompileThreshold=200000",
    "-XX:Tier4BackEdgeThreshold=400000",
)
_MANY_ROWS = 1_000_000
CLASS_ARCHIVE = ROOT / ".jars" / "spark-classes.jsa"


def submit_conf(settings: Settings) -> dict[str, str]:
    """What a driver must know before it starts, for `spark-submit --conf` as for a session that Python starts.

    The jars are put on the class path as they lie (no resolution, no copying). On a master of this host the driver listens on loopback
    only. For a local one Spark draws a secret; that of a standalone cluster is in the environment (`driver_environment`).
    """
    conf = {
        "spark.driver.memory": "1g",
        "spark.driver.extraClassPath": f"{JARS}/*",
        "spark.executor.extraClassPath": f"{JARS}/*",
        "spark.driver.extraJavaOptions": " ".join(java_options()),
        "spark.executor.extraJavaOptions": " ".join(executor_options()),
        "spark.executorEnv.PYTHONPATH": str(ROOT),  # where Python workers find our code
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.variant.allowDuplicateKeys": "true",  # of a repeated name the last counts (contract, rule `parseable`)
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # INT96, Spark's own choice, has no statistics: no page is skipped
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.codegen.cache.maxEntries": "2000",  # a run of gold has more pieces of generated code than Spark keeps by itself: 100
        # Each sort and hash table of a task takes a page: 60 of the default 16 MB would fill the heap. With the 16 bytes of its header it
        # has 1 MB: G1, which executors have, gives it a region of its own, and two to a page of 1 MB: of 1,024 MB Spark could take 868.
        "spark.buffer.pageSize": str(2**20 - 16),
        # What a task returns goes with its message. At Spark's own 1 MB a larger result goes as a block: over the encrypted network, from
        # the process to itself.
        "spark.task.maxDirectResultSize": str(128 * 2**20),
        "spark.unsafe.sorter.spill.read.ahead.enabled": "false",  # two more buffers of 1 MB for each spilled file, which nothing counts
        "spark.python.sql.dataFrameDebugging.enabled": "false",  # it asks the JVM ten times per column, to name a line of Python in errors
        # Rows in memory are computed in tasks, not by the driver while it plans, once for each plan that reads them.
        "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation",
        # Nor do they go to each task one by one: of 10,000 rows that took 0.15 s more than the same ones as Arrow has them.
        "spark.sql.execution.arrow.localRelationThreshold": "0",
        "spark.databricks.delta.snapshotPartitions": "1",  # each partition compiles the code that reads a table's log again
        "spark.log.level": "ERROR",
        "spark.ui.enabled": str(settings.spark_ui).lower(),
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.streaming.stopTimeout": "60s",
        "spark.sql.streaming.checkpointFileManagerClass": REMOTE_CHECKPOINT_FILES
        if storage.is_remote(settings.checkpoints)
        else CHECKPOINT_FILES,
        "spark.hadoop.fs.permissions.umask-mode": f"{UMASK:03o}",  # checkpoint files and others whose mode Hadoop sets itself
        **RPC,
    }
    if settings.remote:
        conf |= s3_conf(settings) | {f"spark.hadoop.{name}": text for name, text in s3_access().items()}
    if settings.spark_ui:
        conf |= SERVLET
    if _is_of_this_host(settings.spark_master):
        conf |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    if settings.spark_master.startswith("spark://"):
        conf["spark.authenticate.secret"] = f"see {CLUSTER_SECRET}"  # Spark wants a value here, and takes the one of the environment
    return conf


def s3_conf(settings: Settings) -> dict[str, str]:
    """What a driver that writes to S3 needs on top: jars of their own, so that no other job loads them and the class archive fits."""
    jars = sorted(map(str, S3_JARS.glob("*.jar")))
    if not jars:
        raise SettingsError(f"no jars for S3 in {S3_JARS}: run make setup")
    place = "local:" if settings.spark_master.startswith("local") else ""  # or it fetches them from itself, in a second
    return {"spark.jars": ",".join(f"{place}{jar}" for jar in jars)}


def bronze_conf() -> dict[str, str]:
    """What the ingestion needs on top, so that files with many records of 10 MB can be joined in its 1 GB.

    Rows go to files as they come, without a sort by `_ingested_on`. Parquet looks at the size of what it holds every few rows, not
    every 100 to 10,000, and keeps no smallest and largest value. The serial collector, other than G1, moves large arrays together.
    """
    checks = {"min": "1", "max": "10"}
    return {
        **_serial_collector(),
        "spark.sql.maxConcurrentOutputFileWriters": "2",
        **{f"spark.hadoop.parquet.{part}.size.row.check.{edge}": rows for part in ("page", "block") for edge, rows in checks.items()},
        "spark.hadoop.parquet.block.size": str(16 * 2**20),
        "spark.hadoop.parquet.enable.dictionary#value": "false",
        "spark.hadoop.parquet.column.statistics.enabled#value": "false",
    }


def state_conf() -> dict[str, str]:
    """How streams keep state: in RocksDB, where each batch writes only its changes; and sources have names."""
    store = "spark.sql.streaming.stateStore"
    return {
        f"{store}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        f"{store}.rocksdb.changelogCheckpointing.enabled": "true",
        f"{store}.rocksdb.boundedMemoryUsage": "true",  # of all queries together, outside the JVM's heap
        f"{store}.rocksdb.maxMemoryUsageMB": "256",
        "spark.sql.streaming.queryEvolution.enableSourceEvolution": "true",
        "spark.sql.streaming.offsetLog.formatVersion": "2",
        "spark.sql.shuffle.partitions": "2",  # of the state too, for as long as it is kept
    }


def live_conf() -> dict[str, str]:
    """What the live queries need on top. The serial collector takes no core from six queries on two of them."""
    return state_conf() | _serial_collector()


def engine_conf() -> dict[str, str]:
    """What an engine needs on top: a JVM that lives for many jobs compiles with both compilers."""
    return {"spark.driver.extraJavaOptions": " ".join(java_options(quick_compiler_only=False))}


def _serial_collector() -> dict[str, str]:
    return {
        "spark.driver.extraJavaOptions": " ".join(java_options(collector="Serial")),
        "spark.executor.extraJavaOptions": " ".join([*executor_options(), "-XX:+UseSerialGC"]),
    }


def java_options(*, quick_compiler_only: bool = True, collector: str = "Parallel") -> list[str]:
    """How the driver's JVM runs. On two cores a job of a minute spends most of it loading and compiling classes.

    So classes come from the archive that set-up makes (where it is missing or does not fit, the JVM does without), and are
    compiled once, by the quick compiler. A JVM that lives for many jobs, or has many rows to work on, is faster with both compilers, if
    the slow one takes only what runs often. Measured in include/docs/decisions/2026-11-21-jvm-starts.md.
    """
    return [
        *executor_options(),
        "-XX:+ExitOnOutOfMemoryError",
        f"-XX:+Use{collector}GC",
        "-XX:+UseTransparentHugePages",
        *(("-XX:TieredStopAtLevel=1",) if quick_compiler_only else _SLOW_COMPILER),
        "-XX:ReservedCodeCacheSize=256m",
        "-XX:-DontCompileHugeMethods",  # a filter of a hundred ranges is one: interpreted, each row takes ten times as long
    ]


def executor_options() -> list[str]:
    """How the JVM of an executor runs, and the driver's: with classes from the archive, where set-up has made it."""
    archive = (f'-XX:SharedArchiveFile="{CLASS_ARCHIVE}"', "-Xshare:auto", "-Xlog:disable", "-Xlog:all=error:stderr")
    common = ["-Duser.timezone=UTC", f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}"]
    return [*common, *(archive if CLASS_ARCHIVE.exists() else ())]


def start_session(settings: Settings, name: str, more: Mapping[str, str] = MappingProxyType({}), *, new_rows: int = 0) -> "SparkSession":
    """The session of this process, with `more` settings, in the JVM of a running engine where `engine.lent` allows it.

    `new_rows`: about how many rows there are to work on, where the caller knows; how a JVM of its own compiles depends on it. Python
    workers run the driver's interpreter.
    """
    from pyspark.logger import PySparkLogger
    from pyspark.sql import SparkSession

    from spark_jobs.runtime import known_classes

    for logger in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):  # they write every error again, with its values
        PySparkLogger.getLogger(logger).setLevel(logging.CRITICAL)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    conf = submit_conf(settings)
    is_first = SparkSession._instantiatedSession is None
    wanted: dict[str, Any] = {**conf, **more}
    if is_first and (gateway := engine.borrow(settings, name, engine.needs(settings.spark_master, conf), more)):
        _enter(gateway)
    elif is_first:
        wanted |= _own_jvm_conf(settings, wanted, new_rows)
    os.environ |= {**ui_environment(settings), **driver_environment(settings)}
    spark = SparkSession.builder.appName(name).master(settings.spark_master).config(map=wanted).getOrCreate()
    known_classes.keep(spark._jvm)
    if settings.remote:
        _let_s3_create_once(spark)
    if is_first and (address := spark.sparkContext.uiWebUrl):
        log.info("Spark's pages: %s", address)
        progress.link(address)
        _show_to_prometheus(settings, name, address)
    return spark


def _let_s3_create_once(spark: "SparkSession") -> None:
    """Let S3 itself refuse to create an object that is there, such as a commit that another writer has made meanwhile (`If-None-Match: *`).

    Delta asks Hadoop for a new file. Hadoop 3.5.0 looks whether there is one, and then overwrites: no setting of it makes the request
    conditional (tests/faults/test_object_storage.py would fail). So its constant for new files is changed.
    """
    s3a = spark.sparkContext._jvm.org.apache.hadoop.fs.s3a.impl  # type: ignore[union-attr]
    s3a.CreateFileBuilder.OPTIONS_CREATE_FILE_NO_OVERWRITE.writeObjectFlags().add(s3a.write.WriteObjectFlags.ConditionalOverwrite)


def _show_to_prometheus(settings: Settings, name: str, address: str) -> None:
    """A file in the form of Prometheus' `file_sd_configs` that says where Spark's metrics are, for as long as this process lives."""
    file = settings.run_folder / "ui" / f"{name.replace(' ', '-')}.json"
    try:
        write_whole(file, json.dumps([{"targets": [address.partition("://")[2]], "labels": {"application": name}}]))
    except OSError as error:  # metrics never fail a job
        log.warning("Prometheus will not find the metrics of Spark: %s", error)
        return
    atexit.register(file.unlink, missing_ok=True)


def _own_jvm_conf(settings: Settings, wanted: Mapping[str, Any], new_rows: int) -> dict[str, str]:
    """What only a JVM of this process has: the compilers for so many rows, and a folder for temporary files that no other JVM may use."""
    options = " ".join(java_options(quick_compiler_only=False)) if new_rows >= _MANY_ROWS else wanted["spark.driver.extraJavaOptions"]
    folder = scratch.own(settings)
    return {"spark.local.dir": str(folder), "spark.driver.extraJavaOptions": f'{options} -Djava.io.tmpdir="{folder}"'}


def ui_environment(settings: Settings) -> dict[str, str]:
    """What a driver must find in its environment to serve Spark's pages on loopback only: they ask nobody who he is."""
    return {"SPARK_LOCAL_IP": "127.0.0.1"} if settings.spark_ui and _is_of_this_host(settings.spark_master) else {}


def driver_environment(settings: Settings) -> dict[str, str]:
    """What a driver must find in its environment to enter a standalone cluster: its secret, which is for no argument and no page."""
    secret = cluster_secret(settings) if settings.spark_master.startswith("spark://") else None
    return {CLUSTER_SECRET: secret} if secret else {}


def _is_of_this_host(master: str) -> bool:
    """Whether the driver and all executors of a master run on this host."""
    return bool(re.match(r"local|spark://(127\.|localhost:)", master))


def _enter(address: Mapping[str, Any]) -> None:
    """Make the session that an engine has made for this job, and lends by the gateway at an address, the session of this process."""
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    os.environ |= {"PYSPARK_GATEWAY_PORT": str(address["port"]), "PYSPARK_GATEWAY_SECRET": address["secret"]}
    try:
        SparkContext._ensure_initialized()
    finally:
        del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]
    jvm: Any = SparkContext._jvm
    context = jvm.JavaSparkContext(jvm.org.apache.spark.SparkContext.getOrCreate())
    session = jvm.org.apache.spark.sql.classic.SparkSession.getDefaultSession().get()
    SparkSession(SparkContext(jsc=context, conf=SparkConf(_jconf=context.getConf())), session)


def jvm_of(spark: "SparkSession") -> int:
    """The process of the session's driver."""
    return int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]
