"""How Airflow starts a job: as a process of its own, `spark_jobs.run <job>`, judged by its exit code.

Arguments go as a list and never through a shell. No secret is among arguments or settings: a job reads them itself.
"""

import os
import re
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import BaseHook, BaseOperator, Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from include.orchestration.lineage import parent_of
from include.orchestration.pages import with_pages
from spark_jobs.runtime import progress
from spark_jobs.runtime.engine import FOLDER
from spark_jobs.runtime.forks import Forked, start
from spark_jobs.runtime.job_process import COMMAND, FINAL_EXIT_CODES, MEANINGS, job_environment
from spark_jobs.runtime.log_lines import error_line
from spark_jobs.runtime.private import UMASK, keep_files_private
from spark_jobs.runtime.session import driver_environment, s3_conf, submit_conf, ui_environment
from spark_jobs.runtime.settings import ROOT, read_settings
from spark_jobs.service.heartbeat import RUNNING, read_one
from spark_jobs.service.services import ENGINE

APPLICATION = ROOT / "spark_jobs" / "run.py"
SPARK_CONNECTION = "spark_default"

Tell = Callable[[Any, Iterable[Any]], None]  # of the events of a run, and its assets
TAIL_LINES = 20  # as many as the provider keeps
PROGRESS = "progress"  # the XCom with what a job that runs for long says last of how far it has come
WITHOUT_ENGINE = "--engine=none"  # of long jobs by the clock: the cycles of silver and gold would find the engine busy meanwhile


def spark_job(
    name: str, *args: str, task_id: str | None = None, operator: "type[SparkJob] | None" = None, **operator_args: Any
) -> SparkSubmitOperator:
    """A task that runs one job of `spark_jobs.run` on Spark, by spark-submit through the connection `spark_default`.

    `args` follow the job's name on its command line; they may be templates, and one that renders to nothing is left out.
    """
    settings = read_settings()
    return (operator or SparkJob)(
        task_id=task_id or name,
        name=f"ledger-{name}",
        conn_id=SPARK_CONNECTION,
        application=str(APPLICATION),
        application_args=[name, *args],
        conf=submit_conf(settings) | (s3_conf(settings) if name == "export" else {}),
        env_vars={**job_environment(), **ui_environment(settings), "LEDGER_RUN_ID": "{{ run_id }}"},
        verbose=False,
        **operator_args,
    )


def job(name: str, *args: str, task_id: str | None = None, **operator_args: Any) -> "Job":
    """A task that runs one job of `spark_jobs.run` that needs no JVM."""
    return Job(task_id=task_id or name, arguments=[name, *args], **operator_args)


def job_error(name: str, exit_code: int, output: str) -> AirflowException:
    """The exception for a job that ended badly: its name, exit code and error in a line; final where no other try can help."""
    line = error_line(output)
    killed_by = -exit_code if exit_code < 0 else exit_code - 128  # the second is how a shell and spark-submit tell of their child
    if killed_by in set(signal.Signals):
        return AirflowException(f"{name}: killed by {signal.Signals(killed_by).name}; its last line: {line}")
    meaning = f" ({MEANINGS[exit_code]})" if exit_code in MEANINGS else ""
    kind = AirflowFailException if exit_code in FINAL_EXIT_CODES else AirflowException
    return kind(f"{name}: exit code {exit_code}{meaning}: {line}")


class _Process:
    """Of an operator: a command whose output goes to the task's log, and that ends with the task, however the task ends."""

    log: Any
    command: Sequence[str] = COMMAND
    _process: "Forked | subprocess.Popen[bytes] | None" = None

    def run_to_the_end(self, context: Context, *arguments: str) -> None:
        """Run to the end; raises as `job_error` says when the exit code is not 0."""
        exit_code, output = self.run_process(context, *arguments)
        if exit_code != 0:
            raise job_error(arguments[0], exit_code, with_pages(output, context.get("ti")))

    def run_process(self, context: Context, *arguments: str) -> tuple[int, str]:
        """Run the command with these arguments, line by line into the log; returns its exit code and last lines."""
        tail: deque[str] = deque(maxlen=TAIL_LINES)
        reading, writing = os.pipe()
        with open(reading, encoding="utf-8", errors="replace") as lines:
            with open(os.devnull, "rb") as nothing, open(writing, "wb") as output:
                self._process = start(
                    read_settings().run_folder / FOLDER,
                    [*self.command, *arguments],
                    cwd=ROOT,
                    env={**os.environ, **job_environment(), "LEDGER_RUN_ID": context.get("run_id", ""), **parent_of(context)},
                    umask=UMASK,
                    stdin=nothing.fileno(),
                    stdout=output.fileno(),
                    stderr=output.fileno(),
                )
            try:
                with _progress_pushed(context, arguments[0]):
                    for line in lines:
                        tail.append(line)
                        self.log.info("%s", with_pages(line.rstrip(), context.get("ti")))
                    return self._process.wait(), "".join(tail)
            except BaseException:  # a timeout of the task, for one, is raised right here
                self._process.kill()
                self._process.wait()
                raise

    def on_kill(self) -> None:
        """End the command. Airflow kills the task's whole process group 5 seconds later."""
        if self._process is not None:
            self._process.terminate()


class SparkJob(_Process, SparkSubmitOperator):
    """The provider's operator; the error of a failure is the job's own last line and exit code, not the whole command.

    Where an engine runs (include/docs/engine.md), the job is a process of this task, which borrows the engine's JVM.
    """

    def execute(self, context: Context) -> None:
        """Submit and wait; raises AirflowFailException for exit codes that no other try can change."""
        keep_files_private()  # before spark-submit starts the JVM
        BaseHook.get_connection(SPARK_CONNECTION)  # raises; the provider would try YARN in place of an unknown connection
        self.application_args = [argument for argument in self.application_args or [] if argument]
        if _engine_runs():
            self.run_to_the_end(context, *self.application_args)
            return
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        self.env_vars = {**(self.env_vars or {}), "PATH": path, **parent_of(context)}
        os.environ |= driver_environment(read_settings())  # not env_vars, which Airflow's pages show
        try:
            with _progress_pushed(context, self.application_args[0]):
                super().execute(context)
        except AirflowException as error:
            exit_code = re.search(r"Error code is: (-?\d+)", str(error))
            if exit_code is None:
                raise
            raise job_error(self.application_args[0], int(exit_code[1]), with_pages(str(error), context.get("ti"))) from None

    def on_kill(self) -> None:
        """End the job, whichever way it runs."""
        if self._process is None:
            SparkSubmitOperator.on_kill(self)
        else:
            _Process.on_kill(self)


class Job(_Process, BaseOperator):
    """Runs a command and shows its output in the task's log. `tell` adds to the events of its assets what they should say."""

    template_fields: Sequence[str] = ("arguments",)

    def __init__(
        self, *, arguments: Sequence[str], command: Sequence[str] = COMMAND, tell: Tell | None = None, **operator_args: Any
    ) -> None:
        super().__init__(**operator_args)
        self.arguments = arguments
        self.command = command
        self.tell = tell

    def execute(self, context: Context) -> Any:
        """Run to the end; raises as `job_error` says when the exit code is not 0."""
        self.run_to_the_end(context, *self.arguments)
        if self.tell:
            self.tell(context["outlet_events"], self.outlets)


@contextmanager
def _progress_pushed(context: Context, name: str) -> Iterator[None]:
    """Push meanwhile, as XCom `progress`, what a job of this task says of how far it has come; in the end, that it has ended."""
    ended = Event()

    def push() -> None:
        pushed = ""
        while not ended.wait(progress.EVERY_SECONDS):
            of_run = [said.says for said in progress.of_jobs(read_settings()) if (said.job, said.run_id) == (name, context["run_id"])]
            if of_run and of_run[-1] != pushed:
                pushed = of_run[-1]
                context["ti"].xcom_push(PROGRESS, pushed)
        if pushed:
            context["ti"].xcom_push(PROGRESS, f"ended; before that: {pushed}")

    pushing = Thread(target=push, name=PROGRESS, daemon=True)
    pushing.start()
    try:
        yield
    finally:
        ended.set()
        pushing.join()


def _engine_runs() -> bool:
    """Whether an engine takes jobs. One that is busy counts: a job that it refuses starts a JVM of its own."""
    settings = read_settings()
    beat = read_one(settings, ENGINE, ENGINE.command)
    return settings.spark_master.startswith("local") and beat is not None and beat.state == RUNNING and beat.is_alive()
