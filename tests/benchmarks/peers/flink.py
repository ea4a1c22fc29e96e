"""Flink SQL on the topic of transactions: JSON to CSV files, all that parse, or the first of each id.

A local cluster of one JVM with two slots, in batch mode, bounded by the topic's end. Flink itself is the wheel of requirements.txt in
the environment `.bench`; `python -m tests.benchmarks.peers.flink` fetches the jars that the wheel lacks (flink-jars.lock). It keeps no
rules, counts, histories, late rows or index of ids; bad JSON is dropped, and no table has a log.
"""

import os
from pathlib import Path

from include.setup.install import fetch_jars, java_command
from spark_jobs.runtime.settings import ROOT
from tests.benchmarks.peers.plain_spark import FIELDS, TRANSACTIONS

JARS = ROOT / ".bench" / "flink"
KAFKA_JARS = ROOT / ".jars" / "kafka"
PARSED = "select {columns} from topic"
FIRST = """select {columns}
from (select *, row_number() over (partition by `transactionId` order by arrival) as place from topic) where place = 1"""
CONFIG = """\
execution.target: local
execution.runtime-mode: batch
parallelism.default: 2
table.dml-sync: true
taskmanager.memory.managed.size: 512m
io.tmp.dirs: {folder}
"""
SCRIPT = """\
create table topic ({fields}, arrival bigint metadata from 'offset' virtual) with (
  'connector' = 'kafka', 'topic' = '{topic}', 'properties.bootstrap.servers' = '{bootstrap}',
  'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset',
  'format' = 'json', 'json.ignore-parse-errors' = 'true'
);
create table files ({fields}) with ('connector' = 'filesystem', 'path' = '{folder}/files', 'format' = 'csv');
insert into files {query};
"""


def find_flink() -> Path | None:
    """Where Flink lies; None where it is not all there."""
    if not any(JARS.glob("*.jar")):
        return None
    return next(ROOT.glob(".bench/lib/python*/site-packages/pyflink"), None)


def plan_command(flink: Path, home: Path, bootstrap: str, query: str) -> list[str]:
    """The command that runs a query; its settings, its script and what it writes are in the folder `flink` of the home."""
    folder = home / "flink"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(CONFIG.format(folder=folder), encoding="utf-8")
    (folder / "script.sql").write_text(script(folder, bootstrap, query), encoding="utf-8")
    compression = [str(jar) for name in ("lz4-java", "zstd-jni") for jar in KAFKA_JARS.glob(f"{name}-*.jar")]
    classes = os.pathsep.join([f"{flink}/lib/*", f"{flink}/opt/*", f"{JARS}/*", *compression])
    opens = [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in ("lang", "lang.reflect", "time", "util", "util.concurrent")]
    java = [java_command(), "-Xmx1g", *opens, "-cp", classes, "org.apache.flink.table.client.SqlClient"]
    return ["env", f"FLINK_CONF_DIR={folder}", *java, "-hist", str(folder / "history"), "-f", str(folder / "script.sql")]


def check_written(home: Path) -> None:
    """Raise SystemExit where no file was finished: the SQL client ends with 0 also when a statement failed."""
    if not any((home / "flink" / "files").glob("part-*")):
        raise SystemExit(f"Flink wrote nothing. Its script is:\n{(home / 'flink' / 'script.sql').read_text(encoding='utf-8')}")


def script(folder: Path, bootstrap: str, query: str) -> str:
    """The statements of a run."""
    pairs = [field.split(" ", 1) for field in FIELDS.split(", ")]
    fields = ", ".join(f"`{name}` {kind}" for name, kind in pairs)
    columns = ", ".join(f"`{name}`" for name, _ in pairs)
    return SCRIPT.format(fields=fields, topic=TRANSACTIONS, bootstrap=bootstrap, folder=folder, query=query.format(columns=columns))


if __name__ == "__main__":
    fetch_jars(ROOT / "tests" / "benchmarks" / "peers" / "flink-jars.lock", JARS)
