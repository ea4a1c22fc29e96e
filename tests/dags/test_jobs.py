"""Jobs as processes: command line, environment, what a failure looks like, how they are ended."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from airflow.sdk import DAG, Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException, DownstreamTasksSkipped

from include.orchestration.jobs import Job, job, job_error, spark_job
from include.orchestration.lineage import parent_of
from include.orchestration.progress import TakeNewBatches, has_new_batches
from spark_jobs.runtime import fork_server, progress
from spark_jobs.runtime.engine import FOLDER
from spark_jobs.runtime.forks import Forked
from spark_jobs.runtime.job_process import job_environment
from spark_jobs.runtime.session import s3_conf, submit_conf
from spark_jobs.runtime.settings import ROOT, read_settings
from spark_jobs.service import heartbeat
from spark_jobs.service.heartbeat import HeartbeatFile
from spark_jobs.service.services import ENGINE
from tests.support.fake_spark import FakeSparkSubmit
from tests.support.ledger import await_that
from tests.support.task_instance import TaskInstance

CONTEXT = Context(run_id="scheduled__2024-05-01T00:00:00+00:00")


def fake_job(folder: Path, body: str) -> tuple[str, ...]:
    """A command that runs a small Python script in place of `spark_jobs.run`."""
    script = folder / "job.py"
    script.write_text(f"import os, sys\n{body}\n")
    return sys.executable, str(script)


def test_spark_job_builds_arguments_settings_and_environment() -> None:
    task = spark_job("silver", "--one", "two")
    assert task.task_id == "silver"
    assert task.application == str(ROOT / "spark_jobs" / "run.py")
    assert task.application_args == ["silver", "--one", "two"]
    assert task.conf == submit_conf(read_settings())
    assert task.env_vars == {**job_environment(), "LEDGER_RUN_ID": "{{ run_id }}"}
    assert task.env_vars["PYTHONPATH"] == str(ROOT)
    assert task.env_vars["PYSPARK_PYTHON"] == task.env_vars["PYSPARK_DRIVER_PYTHON"] == sys.executable
    assert (Path(task.env_vars["SPARK_HOME"]) / "bin" / "spark-class").exists()


def test_an_export_and_no_other_job_gets_the_jars_for_s3() -> None:
    assert spark_job("export", "--to", "s3a://bucket").conf == submit_conf(read_settings()) | s3_conf(read_settings())
    assert "/.jars/s3/hadoop-aws-" in s3_conf(read_settings())["spark.jars"]


def test_no_secret_travels_in_arguments_settings_or_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEDGER_POSTGRES_URL", "postgresql://ledger:canary-4711@127.0.0.1:5432/ledger")
    monkeypatch.setenv("LEDGER_SPARK_MASTER", "spark://127.0.0.1:7077")
    monkeypatch.setenv("_SPARK_AUTH_SECRET", "canary-4712")
    task = spark_job("silver")
    assert "canary" not in repr((task.application_args, task.conf, task.env_vars))


def test_a_spark_job_that_fails_is_told_by_its_last_line(spark_submit: FakeSparkSubmit) -> None:
    task = spark_submit.prepare(spark_job("gold"), "echo noise; echo 'table gold.x: found 3, expected 4'; exit 1")
    with pytest.raises(AirflowException) as failure:
        task.execute(CONTEXT)
    assert str(failure.value) == "gold: exit code 1: table gold.x: found 3, expected 4"
    assert not isinstance(failure.value, AirflowFailException)  # so it is tried again


@pytest.mark.parametrize("exit_code", [2, 3])
def test_a_spark_job_that_cannot_succeed_is_not_tried_again(spark_submit: FakeSparkSubmit, exit_code: int) -> None:
    task = spark_submit.prepare(spark_job("gold"), f"exit {exit_code}")
    with pytest.raises(AirflowFailException, match=f"gold: exit code {exit_code} "):
        task.execute(CONTEXT)


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HeartbeatFile]:
    """The heartbeat of an engine, whose process is this one."""
    monkeypatch.setenv("LEDGER_HOME", str(tmp_path / "home"))
    with heartbeat.beating(read_settings(), ENGINE, ENGINE.command, ["jvm"], "test", 1) as heart:
        heart.beat(state=heartbeat.RUNNING)
        yield heart


def test_a_spark_job_beside_an_engine_is_a_light_process_and_is_told_alike(
    spark_submit: FakeSparkSubmit, tmp_path: Path, engine: HeartbeatFile
) -> None:
    task = spark_submit.prepare(spark_job("gold", "", "--engine=none"), "exit 7")
    task.command = fake_job(tmp_path, "print(sys.argv[1:])\nprint('x' * 10)\nsys.exit(f'closed: {os.environ[\"LEDGER_RUN_ID\"]}')")
    with pytest.raises(AirflowException) as failure:
        task.execute(CONTEXT)
    assert str(failure.value) == f"gold: exit code 1: closed: {CONTEXT['run_id']}"
    task.command = fake_job(tmp_path, "sys.exit(0 if sys.argv[1:] == ['gold', '--engine=none'] else 9)")
    task.execute(CONTEXT)
    engine.beat(state=heartbeat.STOPPING)  # takes no job any more
    with pytest.raises(AirflowException, match="gold: exit code 7"):
        task.execute(CONTEXT)


def test_a_spark_job_of_a_cluster_never_is_a_light_process(
    spark_submit: FakeSparkSubmit, engine: HeartbeatFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEDGER_SPARK_MASTER", "k8s://https://127.0.0.1:1")
    with pytest.raises(AirflowException, match="gold: exit code 7"):
        spark_submit.prepare(spark_job("gold"), "exit 7").execute(CONTEXT)


def test_an_unknown_connection_is_named_and_nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_SPARK_DEFAULT", raising=False)
    with pytest.raises(Exception, match="spark_default"):
        spark_job("gold").execute(CONTEXT)


def test_job_runs_the_entry_point() -> None:
    task = job("release")
    assert [*task.command, *task.arguments] == [sys.executable, "-m", "spark_jobs.run", "release"]


def test_a_job_sees_this_checkout_and_the_run_it_belongs_to(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    body = (
        f"open({str(seen)!r}, 'w').write('\\n'.join([os.getcwd(), os.environ['PYTHONPATH'], os.environ['LEDGER_RUN_ID'], *sys.argv[1:]]))"
    )
    Job(task_id="release", arguments=["release", "ä"], command=fake_job(tmp_path, body)).execute(CONTEXT)
    assert seen.read_text().splitlines() == [str(ROOT), str(ROOT), CONTEXT["run_id"], "release", "ä"]


@pytest.mark.parametrize(("address", "parent"), [("http://127.0.0.1:9", "ledger/medallion.release/1"), ("", "none")])
def test_a_job_is_told_which_task_started_it_where_lineage_is_sent(
    spark_submit: FakeSparkSubmit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, parent: str
) -> None:
    monkeypatch.setenv("OPENLINEAGE_URL", address)
    monkeypatch.setattr("airflow.providers.openlineage.plugins.macros.lineage_parent_id", lambda _: "ledger/medallion.release/1")
    seen = tmp_path / "seen"
    body = f"open({str(seen)!r}, 'w').write(os.environ.get('OPENLINEAGE_PARENT_ID', 'none'))"
    Job(task_id="release", arguments=["release"], command=fake_job(tmp_path, body)).execute(TaskInstance().context(run_id="run"))
    assert seen.read_text() == parent
    submitted = spark_submit.prepare(spark_job("gold"), "echo >&2 parent: ${OPENLINEAGE_PARENT_ID:-none}; exit 7")
    with pytest.raises(AirflowException, match=f"gold: exit code 7: parent: {parent}$"):
        submitted.execute(TaskInstance().context(run_id="run"))


def test_a_job_runs_without_a_parent_that_cannot_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENLINEAGE_URL", "http://127.0.0.1:9")
    assert parent_of(Context()) == {}


def test_what_a_job_says_of_its_progress_is_pushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEDGER_HOME", str(tmp_path))
    monkeypatch.setattr(progress, "EVERY_SECONDS", 0.05)
    body = """
import time
from spark_jobs.runtime import fork_server, progress
from spark_jobs.runtime.settings import read_settings
progress.EVERY_SECONDS = 0.05
with progress.shown(read_settings(), "release", os.environ["LEDGER_RUN_ID"]):
    for day in range(2):
        with progress.phase(f"day {day}", 2, "days"):
            time.sleep(1)
"""
    ti = TaskInstance()
    Job(task_id="release", arguments=["release"], command=fake_job(tmp_path, body)).execute(ti.context(run_id=CONTEXT["run_id"]))
    assert list(ti.pushed) == ["progress"]
    assert ti.pushed["progress"].startswith("ended; before that: day 1, 0 of 2 days in 0:00:0")


@pytest.fixture
def forking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A home with a fork server, which has no library of the jobs."""
    monkeypatch.setenv("LEDGER_HOME", str(tmp_path / "home"))
    folder = read_settings().checkpoints / FOLDER
    folder.mkdir(parents=True)
    server = subprocess.Popen([sys.executable, fork_server.__file__, str(folder), "json"], stdin=subprocess.PIPE)
    await_that(lambda: (folder / fork_server.SOCKET).exists())
    yield
    assert server.stdin
    server.stdin.close()
    assert server.wait(30) == 0  # no job of a test is left


def test_a_job_beside_an_engine_is_forked_and_is_told_alike(forking: None) -> None:
    task = Job(task_id="release", arguments=["3"])
    task.command = (sys.executable, "-m", "tests.support.forked_job")
    with pytest.raises(AirflowFailException) as failure:
        task.execute(CONTEXT)
    assert str(failure.value) == f"3: exit code 3 (gate closed): forked True, run {CONTEXT['run_id']}"
    assert isinstance(task._process, Forked)


def test_a_timeout_of_a_task_ends_its_forked_job(forking: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise TimeoutError("of the task")

    task = Job(task_id="release", arguments=["sleep"])
    task.command = (sys.executable, "-m", "tests.support.forked_job")
    monkeypatch.setattr(Job, "log", SimpleNamespace(info=interrupt, warning=print))
    with pytest.raises(TimeoutError, match="of the task"):
        task.execute(CONTEXT)
    assert task._process is not None
    assert task._process.returncode == -9


def test_a_job_that_fails_is_told_by_its_last_line(tmp_path: Path) -> None:
    command = fake_job(tmp_path, "print('first')\nsys.exit('disk full: free some space')")
    with pytest.raises(AirflowException) as failure:
        Job(task_id="release", arguments=["release"], command=command).execute(CONTEXT)
    assert str(failure.value) == "release: exit code 1: disk full: free some space"
    assert not isinstance(failure.value, AirflowFailException)


def test_the_error_that_the_job_logged_is_told_even_when_other_lines_follow() -> None:
    output = "2024-05-01T00:00:07Z ERROR no broker: run make up\n2024-05-01T00:00:07.123Z ERROR Utils: shutdown\n\n"
    assert str(job_error("bronze", 1, output)) == "bronze: exit code 1: no broker: run make up"


def test_the_line_of_a_job_names_pages_that_people_can_open(tmp_path: Path) -> None:
    command = fake_job(tmp_path, "print('gate silver is closed; report: file:///a%20home/quality/data_docs/8.html')\nsys.exit(3)")
    task = Job(task_id="release", arguments=["release"], command=command)
    with (
        patch.object(Job, "log") as log,
        pytest.raises(AirflowFailException, match=r"; report: http://127\.0\.0\.1:8080/quality/data_docs/8\.html$"),
    ):
        task.execute(TaskInstance().context(run_id="r"))
    log.info.assert_called_once_with("%s", "gate silver is closed; report: http://127.0.0.1:8080/quality/data_docs/8.html")


def test_arguments_reach_a_job_as_they_are(tmp_path: Path) -> None:
    hostile = ["$(touch owned)", "; touch owned", "`touch owned`", "a b", "* ?", "'\""]
    command = fake_job(tmp_path, "sys.exit(repr(sys.argv[1:]))")
    with pytest.raises(AirflowException) as failure:
        Job(task_id="release", arguments=["release", *hostile], command=command).execute(CONTEXT)
    assert str(failure.value) == f"release: exit code 1: {['release', *hostile]!r}"


@pytest.mark.parametrize("kind", ["Job", "SparkJob beside an engine"])
def test_on_kill_ends_the_process(tmp_path: Path, kind: str, spark_submit: FakeSparkSubmit, engine: HeartbeatFile) -> None:
    ready = tmp_path / "ready"
    os.mkfifo(ready)
    task = job("release") if kind == "Job" else spark_job("release")
    task.command = fake_job(tmp_path, f"import signal\nopen({str(ready)!r}, 'w')\nsignal.pause()")
    failures: list[str] = []

    def execute() -> None:
        try:
            task.execute(CONTEXT)
        except AirflowException as failure:
            failures.append(str(failure))

    thread = threading.Thread(target=execute)
    thread.start()
    ready.open().close()  # opens when the process has come to that line
    task.on_kill()
    thread.join(timeout=20)
    assert failures == ["release: killed by SIGTERM; its last line: no output"]


@pytest.mark.parametrize(("exit_code", "final"), [(1, False), (2, True), (3, True), (4, True), (5, False), (137, False), (-9, False)])
def test_which_exit_codes_are_final(exit_code: int, final: bool) -> None:
    assert isinstance(job_error("silver", exit_code, "why"), AirflowFailException) is final


@pytest.mark.parametrize("exit_code", [-9, 137])  # the JVM itself, and Python under a JVM that tells of it
def test_a_killed_job_says_so(exit_code: int) -> None:
    assert str(job_error("bronze", exit_code, "batch 7\n")) == "bronze: killed by SIGKILL; its last line: batch 7"


def test_a_forced_run_asks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEDGER_HOME", str(tmp_path / "missing"))
    assert has_new_batches(force=True)
    assert not (tmp_path / "missing").exists()


def test_without_new_batches_no_jvm_starts_and_nothing_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark_submit: FakeSparkSubmit
) -> None:
    """Unless the run is forced."""
    monkeypatch.setenv("LEDGER_HOME", str(tmp_path / "missing"))
    with DAG("d", schedule=None):
        silver: Any = spark_job("silver", operator=TakeNewBatches)
        silver >> job("release")
    spark_submit.prepare(silver, "exit 0")
    with pytest.raises(DownstreamTasksSkipped) as skipped:
        silver.execute(TaskInstance().context(params={"force": False}))
    assert skipped.value.tasks == ["release"]
    assert not (spark_submit.home / "arguments").exists()
    silver.execute(TaskInstance().context(run_id="r", params={"force": True}))
    assert spark_submit.arguments()[-1] == "silver"
