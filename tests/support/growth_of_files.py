"""Checks of the lines about files beside the warehouse, and about the servers of the stack: see growth.py."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from openlineage.client.transport.file import FileConfig, FileTransport

from include.setup import install
from include.stack import kafka, postgres, prometheus
from spark_jobs.kafka import topics
from spark_jobs.lake import tables
from spark_jobs.maintenance import requests
from spark_jobs.runtime import job_counts, progress, scratch, session
from spark_jobs.runtime.settings import ROOT, Settings
from spark_jobs.service import checkpoints, desired_state, heartbeat, log_writer
from spark_jobs.service.services import INGESTION
from tests.support.growth import DAYS, DAYS_AGO, NOW, names, of_line, size, write_old


@of_line("runs and XComs in Airflow's database")
def of_airflow(settings: Settings) -> Iterator[None]:
    for day in DAYS_AGO:
        write_old(settings.home / f"logs/dag_id=medallion/run_id={day:%F}/task_id=silver/attempt=1.log", day)
        write_old(settings.home / f"logs/dag_processor/{day:%F}/dags.log", day)
    yield
    assert len(list((settings.home / "logs").rglob("*.log"))) == 2 * 30
    environment = {name: text for name, text in os.environ.items() if not name.startswith(("AIRFLOW", "LEDGER"))}
    own = {"AIRFLOW_HOME": str(settings.home / "airflow"), "PYTHONPATH": str(ROOT), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
    done = subprocess.run([sys.executable, "-c", AIRFLOW], env=environment | own, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {"dag_run": 30, "task_instance": 30, "xcom": 30, "log": 30, "asset_event": 30}


# In a process of its own: Airflow reads its settings while it is imported. Its tables are made at once, without their migrations.
AIRFLOW = """
import json
from datetime import UTC, datetime, timedelta
from sqlalchemy import text
from airflow import settings
from airflow.models.base import Base
from airflow.utils.db import import_all_models
from airflow.utils.session import create_session
from include.airflow_cleanup import clean_database
import_all_models()
Base.metadata.create_all(settings.engine)
now = datetime.now(UTC)
def insert(session, table, **values):
    for column in Base.metadata.tables[table].columns:
        if not column.nullable and column.name not in values and not column.primary_key and column.default is None:
            values[column.name] = {int: 0, str: "", bool: False, datetime: now, dict: {}}.get(column.type.python_type)
    return session.execute(Base.metadata.tables[table].insert().values(**values)).inserted_primary_key
with create_session() as session:
    insert(session, "dag_bundle", name="dags")
    insert(session, "dag", dag_id="medallion", bundle_name="dags", fileloc="x.py")
    for day in range(90, 0, -1):
        at = now - timedelta(days=day)
        run = f"run {day}"
        times = dict(logical_date=at, run_after=at, start_date=at)
        (number,) = insert(session, "dag_run", dag_id="medallion", run_id=run, run_type="scheduled", state="success", **times)
        task = dict(dag_id="medallion", task_id="silver", run_id=run, map_index=-1)
        insert(session, "task_instance", state="success", pool="default", **task)
        insert(session, "xcom", key="return_value", value="{}", dag_run_id=number, timestamp=at, **task)
        insert(session, "log", event="success", dttm=at)
        insert(session, "asset_event", asset_id=1, timestamp=at)
clean_database(now - timedelta(days=30, hours=1))
with create_session() as session:
    names = ("dag_run", "task_instance", "xcom", "log", "asset_event")
    print(json.dumps({name: session.execute(text(f"select count(*) from {name}")).scalar() for name in names}))
"""


@of_line("logs of the stack and of the applications")
def of_logs(settings: Settings) -> Iterator[None]:
    """35 MB of lines through the process that writes such logs."""
    log, said = settings.home / "stack/part.log", b"a line of a log\n" * 65536
    log.parent.mkdir()
    with open(log, "ab") as file, subprocess.Popen([*log_writer.command(), str(log)], stdin=subprocess.PIPE, stdout=file) as writer:
        assert writer.stdin
        for _ in range(35):
            writer.stdin.write(said)
        writer.stdin.close()
    yield
    assert [file.name for file in log.parent.glob("part.log*")] in (["part.log", "part.log.1"], ["part.log.1", "part.log"])
    assert all(file.stat().st_size <= log_writer.MOST_BYTES + 16 for file in log.parent.glob("part.log*"))


@of_line("checkpoints of the streams")
def of_checkpoints(settings: Settings) -> Iterator[None]:
    """A new generation each day. How many batches one keeps is Spark's default, which nothing here changes."""
    root = settings.checkpoints / "bronze/transactions"
    for number in range(1, DAYS + 1):
        generation = checkpoints.Generation(root, str(number))
        generation.use({"generation": number})
        write_old(generation.folder / "offsets/0", NOW)
    yield
    assert [folder.name for folder in root.iterdir() if folder.is_dir()] == [str(DAYS)]
    conf = session.submit_conf(settings) | session.live_conf() | session.bronze_conf() | session.engine_conf()
    assert not [name for name in conf if "minBatchesToRetain" in name]


@of_line("state of the live queries")
def of_state(settings: Settings) -> Iterator[None]:
    """Each operator with state must be in the list of a test with Spark; what those keep beside the watermark is a table row a key."""
    yield
    text = (ROOT / "tests/spark/live/test_state.py").read_text()
    assert "for query in" in text
    assert "BOUNDED.get(query.name, WATERMARKED)" in text


@of_line("savepoints, backups, exports")
def of_savepoints(settings: Settings) -> Iterator[None]:
    """Nothing removes what an operator made."""
    savepoint = write_old(settings.checkpoints / "live/savepoints/before/savepoint.json", DAYS_AGO[0])
    yield
    assert savepoint.exists()


@of_line("$LEDGER_CHECKPOINTS/progress")
def of_progress(settings: Settings) -> Iterator[None]:
    for number, day in enumerate(DAYS_AGO[:-1]):
        write_old(settings.checkpoints / f"progress/silver-{number}.json", day)
    yield
    with progress.shown(settings, "silver", "run"):
        pass
    assert list((settings.checkpoints / "progress").iterdir()) == []


@of_line("heartbeats, exit codes, requests")
def of_small_files(settings: Settings) -> Iterator[None]:
    def day() -> None:
        heartbeat.HeartbeatFile(settings, INGESTION, "bronze", INGESTION.parts, "run", 1).beat(state="running")
        desired_state.ask(settings, INGESTION, desired_state.STOPPED, "test", "")
        requests.ask(settings, [tables.BRONZE_TRANSACTIONS], "test", NOW, 1)  # who asked is killed before it takes this:
        write_old(settings.checkpoints / f"bronze/maintenance.{os.urandom(6).hex()}.bronze.transactions.json", NOW)
        with job_counts.counted(settings, "silver"):
            pass

    for _ in range(10):
        day()
    few = names(settings.checkpoints)
    for _ in range(DAYS):
        day()
    assert len(names(settings.checkpoints)) <= len(few) + 1
    assert size(settings.checkpoints / "jobs") < 1024
    yield
    assert size(settings.warehouse / ".leases") < 512 * len(tables.EVERY)


@of_line("what killed processes leave")
def of_leftovers(settings: Settings) -> Iterator[None]:
    """Each day a job is killed that has spilled to the disk, as it replaces a file; and one still runs."""
    for number, day in enumerate(DAYS_AGO[:-1]):
        write_old(settings.home / f"scratch/{number}/blockmgr/spilled", day)
        write_old(settings.home / f"scratch/{number}/lock", day, "")
        write_old(settings.checkpoints / f"bronze/.transactions.json.{number}", day)
    own = scratch.own(settings)
    (own / "spilled").write_text("x")
    young = write_old(settings.checkpoints / "bronze/.transactions.json.4711", NOW)
    hidden = write_old(settings.checkpoints / "bronze/.0.crc", DAYS_AGO[0])
    yield
    assert list((settings.home / "scratch").iterdir()) == [own]
    assert (own / "spilled").exists()
    assert set((settings.checkpoints / "bronze").glob(".*")) >= {young, hidden}
    assert not list((settings.checkpoints / "bronze").glob(".transactions.json.[0-9]"))


@of_line("metrics in Prometheus")
def of_metrics(settings: Settings) -> Iterator[None]:
    ports = dict.fromkeys(prometheus.PARTS, 1)
    commands = dict(prometheus._commands(settings, ports, list(prometheus.PARTS)))
    yield
    assert {"--storage.tsdb.retention.time=15d", "--storage.tsdb.retention.size=1GB"} <= set(commands[prometheus.PROMETHEUS])
    assert not [word for word in commands[prometheus.ALERTMANAGER] if "retention" in word]  # 120 hours by itself


@of_line("records in the embedded Kafka")
def of_kafka(settings: Settings) -> Iterator[None]:
    """Each topic is compacted, by a key that comes again, or lives as long as the broker says."""
    yield
    assert "\nlog.retention.hours=720\n" in kafka.CONFIG
    every = (*topics.SOURCE_TOPICS, topics.DEBITS, topics.CREDITS, topics.ALERTS, topics.PUBLISHED)
    compacted = {topic.name for topic in every if topic.config.get("cleanup.policy") == "compact"}
    assert compacted == {"customers", "accounts", "alerts", "ledger.published"}
    assert not [topic.name for topic in every if any("retention" in name for name in topic.config)]


@of_line("the write-ahead log")
def of_postgres(settings: Settings) -> Iterator[None]:
    """The server gets no setting that makes it keep more than it does by itself."""
    commands: list[list[str]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(postgres, "_initialise", lambda *_: None)
        patch.setattr(postgres, "start", lambda _home, _part, command, *_: commands.append(command))
        postgres.launch(settings.home)
    yield
    given = {word.partition("=")[0] for word in commands[0] if "=" in word}
    assert "shared_buffers" in given
    assert not [name for name in given if name.startswith(("max_wal", "wal_keep", "archive", "max_replication", "primary"))]


@of_line("events of lineage")
def of_lineage(settings: Settings) -> Iterator[None]:
    """A file that is moved away each day is begun again, also by a job that has written to it before."""
    file = settings.home / "events.jsonl"
    transport = FileTransport(FileConfig(log_file_path=str(file), append=True))
    for day in range(DAYS):
        transport.emit({"day": day})  # type: ignore[arg-type]
        file.replace(file.with_suffix(".1"))
    yield
    assert json.loads(file.with_suffix(".1").read_text()) == {"day": DAYS - 1}


@of_line("Spark's class archive")
def of_classes(settings: Settings) -> Iterator[None]:
    """An archive for each of many versions of Java."""
    folder = settings.home / "jars"
    folder.mkdir()
    made = [0]

    def run(command: list[str]) -> None:
        made[0] += 1
        Path(command[-1]).write_text("x")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(install, "JARS", folder)
        patch.setattr(install, "run", run)
        for day in range(DAYS):
            java = subprocess.CompletedProcess([], 0, "", f"Java {day}")
            patch.setattr(subprocess, "run", lambda *_, java=java, **__: java)
            install.archive_classes()
    yield
    assert made == [DAYS]
    assert names(folder) == {"spark-classes.jsa", "spark-classes.stamp"}
