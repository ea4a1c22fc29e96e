"""The whole pipeline once, from Kafka to a release, with a reconciliation at the end.

Exit code 0 only when every record is accounted for and every gate passed; 3 when a gate is closed, 1 for anything else.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from include.demo import closed_gate
from include.demo.reconciliation import read_gates, reconcile, table_rows
from include.demo.waiting import Clock, wait_for_dags, wait_for_ingestion
from include.stack import airflow
from include.stack.airflow_api import AirflowApi
from include.stack.lifecycle import up
from include.stack.processes import mark
from spark_jobs.releases.releases import Release, newest_release
from spark_jobs.runtime.command import run_command
from spark_jobs.runtime.errors import GateClosed, LedgerError
from spark_jobs.runtime.settings import ROOT, Settings, read_endpoints

DATA = ROOT.parent / "shared/data"
GENERATED_TRANSACTIONS = 100_000
DISTURBANCES = ("--duplicates", "0.01", "--malformed", "0.005", "--late", "0.005")
TRANSACTIONS_A_SECOND = 5_000
PRODUCER_SECONDS = 300
MEDALLION_SECONDS = 600
USUAL_MINUTES = "about 2.5 to 4"


class Producer:
    """The event producer as a process of its own, so that it sends while Airflow boots."""

    def __init__(self, settings: Settings, *words: str) -> None:
        environment = {**os.environ, "LEDGER_HOME": str(settings.home), "LEDGER_KAFKA_BOOTSTRAP": settings.broker().servers}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "include.producer", *words],
            cwd=ROOT,
            env={**environment, **mark(settings.home, "producer")},  # so that `make down` ends it too
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )

    def finish(self) -> list[str]:
        """Wait and return what it printed; raises LedgerError when not everything was acknowledged."""
        try:
            output, _ = self._process.communicate(timeout=PRODUCER_SECONDS)
        except subprocess.TimeoutExpired:
            raise LedgerError(f"the producer was not done after {PRODUCER_SECONDS} s") from None
        if self._process.returncode != 0:
            raise LedgerError(f"the producer failed with exit code {self._process.returncode}: {' | '.join(output.splitlines()[-3:])}")
        return [line for line in output.splitlines() if line.strip()]

    def end(self) -> None:
        """End it, if it still runs."""
        if self._process.poll() is None:
            self._process.terminate()
            self._process.wait()


def main(arguments: Sequence[str]) -> int:
    """Run the demo and return its exit code; what goes wrong is one line on standard error."""
    parser = argparse.ArgumentParser(prog="python -m include.demo", description=__doc__, allow_abbrev=False)
    parser.add_argument("--gate", choices=["closed"], help="closed: send a bad batch after the release, which closes a gate")
    parser.add_argument("--warehouse", choices=["s3"], help="s3: keep tables and checkpoints in an embedded S3 server")
    options = parser.parse_args(arguments)

    def command() -> int:
        return run(Clock(), closes_gate=options.gate is not None, with_s3=options.warehouse == "s3")

    return run_command("demo", command, "interrupted; make down stops the services", cleans_up=True)


def run(announce: Clock, environ: Mapping[str, str] = os.environ, *, closes_gate: bool = False, with_s3: bool = False) -> int:
    """Services, data, bronze, medallion, reconciliation; then a bad batch, if it is asked for. `with_s3`: with its tables in S3.

    Returns the exit code; raises LedgerError when a step fails.
    """
    producers: list[Producer] = []
    bank = ("replay", "--data", str(DATA)) if has_data(DATA) else ("generate", "--transactions", str(GENERATED_TRANSACTIONS))

    def produce(settings: Settings, *words: str) -> None:
        producers.append(Producer(settings, *words))
        announce(f"producer: {' '.join(words)}")

    def finish(settings: Settings) -> None:
        for line in producers[-1].finish():
            announce(f"producer: {line}")
        wait_for_ingestion(settings, api, announce)

    announce(f"the demo takes {USUAL_MINUTES} minutes on two cores; its services keep running until make down")
    try:
        settings = up(
            environ,
            announce,
            when_kafka_is_up=lambda settings: produce(settings, *bank, *DISTURBANCES, "--only", "customers,accounts"),
            with_s3=with_s3,
        )
        api = AirflowApi(read_endpoints(settings.home)["airflow_url"], airflow.USER, airflow.password_file(settings.home).read_text())
        wait_for_dags(api, "bronze_ingestion", "medallion")
        api.unpause("bronze_ingestion")
        announce("bronze_ingestion is on")
        finish(settings)
        # Bronze is up now, and takes the transactions as they come: so the late ones are late.
        produce(settings, *bank, *DISTURBANCES, "--only", "transactions", "--rate", str(TRANSACTIONS_A_SECOND))
        finish(settings)
        run_id = api.trigger("medallion")  # before it is switched on, so that this run comes before one that a new batch starts
        api.unpause("medallion")
        state = api.wait_for_run("medallion", run_id, MEDALLION_SECONDS, announce)
        code = report(settings, api, run_id, state)
        if closes_gate and not code:
            known = api.runs("medallion")
            closed_gate.send_bad_batch(settings)
            announce("producer: a bad batch of transactions is sent")
            wait_for_ingestion(settings, api, announce)
            closed_gate.show(settings, api, known, announce)
            code = GateClosed.exit_code
        if settings.spark_master.startswith("local"):  # on a cluster each job has a driver
            api.unpause("spark_engine")  # not before: on two cores it would take as long to start as it saves
            announce("spark_engine is on: from now on jobs run in a warm Spark, which holds 1.5 to 3 GB until engine_control stops it")
        return code
    finally:
        for producer in producers:
            producer.end()


def has_data(folder: Path) -> bool:
    """Whether the bank's three files are in a folder."""
    return all((folder / f"{name}.csv").is_file() for name in ("transactions", "customers", "accounts"))


def report(settings: Settings, api: AirflowApi, run_id: str, state: str) -> int:
    """Print the reconciliation, the verdicts, the release and the addresses; returns the exit code."""
    wrong: list[str] = []
    if state != "success":
        failed = [task for task, task_state in api.task_states("medallion", run_id).items() if task_state == "failed"]
        wrong.append(f"run {run_id} of medallion ended as {state}; failed tasks: {', '.join(failed) or 'none'}")
    try:
        release = newest_release(settings)
        wrong += report_rows(settings, release)
        named = f"{release.release_id} ({len(release.versions)} tables, each at one judged version)"
    except LedgerError as error:
        wrong.append(str(error))
        named = "none"
    gates = read_gates(settings)
    for gate in gates:
        verdict = "passed" if gate.passed else "CLOSED" if gate.tables else "NOT JUDGED"
        print(f"Gate {gate.layer}: {verdict} ({gate.tables} tables, {gate.evaluated} expectations), report {gate.report}")
        if not gate.passed:
            wrong.append(f"gate {gate.layer} is {verdict.lower()}: {', '.join(gate.failed_expectations) or 'no verdict'}")
    print(f"Release: {named}")
    print(f"Reports: {read_endpoints(settings.home)['airflow_url']}/plugin/quality (files: {settings.quality})")
    print(
        f"Airflow: {read_endpoints(settings.home)['airflow_url']} user {airflow.USER}, password in {airflow.password_file(settings.home)}"
    )
    for line in wrong:
        print(f"demo: {line}", file=sys.stderr)
    if any(gate.tables and not gate.passed for gate in gates):
        return GateClosed.exit_code
    return 1 if wrong else 0


def report_rows(settings: Settings, release: Release) -> list[str]:
    """Print the rows of each table and the conservation sum; returns a line for each thing that does not add up."""
    wrong = []
    print("\nRows at the versions of the release")
    for name, rows in table_rows(settings, release).items():
        print(f"  {name:34} {rows:>10,}")
        if rows != release.rows[name]:
            wrong.append(f"release {release.release_id} has {release.rows[name]} rows of {name} on record, found {rows}")
    found = reconcile(settings, release)
    print(f"\nConservation, by coordinates: {found}{' DOES NOT HOLD' if found.differences else ''}")
    return wrong + found.differences


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
