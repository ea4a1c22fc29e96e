"""`python -m include.demo`: the whole pipeline once, from Kafka to a release, with the account at the end.

Exit code 0 only when every record is accounted for and every gate passed; 3 when a gate is closed, 1 for anything else.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import FrameType

from confluent_kafka import Consumer, KafkaException, TopicPartition

from include.account import close_account, ingested, read_gates, table_rows
from include.stack import airflow
from include.stack.airflow_api import AirflowApi
from include.stack.endpoints import read_endpoints
from include.stack.lifecycle import up
from include.stack.processes import mark
from spark_jobs.lake.tables import BRONZE
from spark_jobs.releases.releases import Release, newest_release
from spark_jobs.runtime.errors import GateClosed, LedgerError
from spark_jobs.runtime.private import keep_files_private
from spark_jobs.runtime.settings import ROOT, Settings

DATA = ROOT.parent / "shared/data"
GENERATED_TRANSACTIONS = 100_000
DISTURBANCES = ("--duplicates", "0.01", "--malformed", "0.005", "--late", "0.005")
TRANSACTIONS_A_SECOND = 5_000
DAG_SECONDS = 120
PRODUCER_SECONDS = 300
INGESTION_SECONDS = 240
MEDALLION_SECONDS = 600
INTERRUPTED = 130


class Clock:
    """Prints lines with the seconds since the start."""

    def __init__(self) -> None:
        self._begun = time.monotonic()

    def __call__(self, line: str) -> None:
        """Print one line."""
        print(f"[{time.monotonic() - self._begun:5.0f} s] {line}", flush=True)


class Producer:
    """The event producer as a process of its own, so that it sends while Airflow boots."""

    def __init__(self, settings: Settings, *options: str) -> None:
        source = ["replay", "--data", str(DATA)] if has_data(DATA) else ["generate", "--transactions", str(GENERATED_TRANSACTIONS)]
        environment = {**os.environ, "LEDGER_HOME": str(settings.home), "LEDGER_KAFKA_BOOTSTRAP": settings.broker()}
        self.source = " ".join(source[:1] + source[-1:])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "include.producer", *source, *DISTURBANCES, *options],
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


def main() -> int:
    """Run the demo and return its exit code; what goes wrong is one line on standard error."""
    keep_files_private()
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        return run(Clock())
    except LedgerError as error:
        print(f"demo: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("demo: interrupted; make down stops the services", file=sys.stderr)
        return INTERRUPTED


def run(tell: Clock, environ: Mapping[str, str] = os.environ) -> int:
    """Services, data, bronze, medallion, account. Returns the exit code; raises LedgerError when a step cannot go on."""
    producers: list[Producer] = []

    def produce(settings: Settings, *options: str) -> None:
        producers.append(Producer(settings, *options))
        tell(f"producer: {producers[-1].source} {' '.join(options)}, with 1 % duplicates, 0.5 % malformed and 0.5 % late rows")

    def finish(settings: Settings) -> None:
        for line in producers[-1].finish():
            tell(f"producer: {line}")
        wait_for_ingestion(settings, api, tell)

    try:
        settings = up(environ, tell, when_kafka_is_up=lambda settings: produce(settings, "--only", "customers,accounts"))
        api = AirflowApi(read_endpoints(settings.home)["airflow_url"], airflow.USER, airflow.password_file(settings.home).read_text())
        wait_for_dags(api, "bronze_ingestion", "medallion")
        api.unpause("bronze_ingestion")
        tell("bronze_ingestion is on")
        finish(settings)
        # Bronze is up now, and takes the transactions as they come: so the late ones are late.
        produce(settings, "--only", "transactions", "--rate", str(TRANSACTIONS_A_SECOND))
        finish(settings)
        run_id = api.trigger("medallion")  # before it is switched on, so that this run comes before a scheduled one
        api.unpause("medallion")
        state = api.wait_for_run("medallion", run_id, MEDALLION_SECONDS, tell)
    finally:
        for producer in producers:
            producer.end()
    return report(settings, api, run_id, state)


def has_data(folder: Path) -> bool:
    """Whether the bank's three files are in a folder."""
    return all((folder / f"{name}.csv").is_file() for name in ("transactions", "customers", "accounts"))


def wait_for_dags(api: AirflowApi, *dag_ids: str) -> None:
    """Return when Airflow knows the DAGs; raises LedgerError naming the files that cannot be read."""
    deadline = time.monotonic() + DAG_SECONDS
    while missing := [dag_id for dag_id in dag_ids if not api.has_dag(dag_id)]:
        if errors := api.import_errors():
            raise LedgerError(f"Airflow cannot read {'; '.join(errors)}")
        if time.monotonic() > deadline:
            raise LedgerError(f"Airflow did not find the DAGs {', '.join(missing)} in {ROOT / 'dags'} within {DAG_SECONDS} s")
        time.sleep(0.5)


def wait_for_ingestion(settings: Settings, api: AirflowApi, tell: Clock) -> None:
    """Return when bronze holds every record that Kafka has; raises LedgerError when it makes no progress for minutes."""
    ends = {table.name: watermarks(settings.broker(), table.name.split(".")[1]) for table in BRONZE}
    last, since = "", time.monotonic()
    while True:
        behind = []
        for table in BRONZE:
            topic = table.name.split(".")[1]
            have = ingested(settings, table, topic)
            behind += [
                f"{topic}-{partition} at {have.get(partition, (0, 0))[1]} of {end}"
                for partition, (begin, end) in ends[table.name].items()
                if end > begin and have.get(partition, (0, 0))[1] < end
            ]
        if not behind:
            held = {table.name: sum(count for count, _ in ingested(settings, table, table.name.split(".")[1]).values()) for table in BRONZE}
            tell("bronze holds all of Kafka: " + ", ".join(f"{name} {count}" for name, count in held.items()))
            return
        if (now := "; ".join(behind)) != last:
            last, since = now, time.monotonic()
        if time.monotonic() - since > INGESTION_SECONDS:
            runs = api.runs("bronze_ingestion")
            states = api.task_states("bronze_ingestion", runs[0]) if runs else {}
            raise LedgerError(f"bronze has stood still for {INGESTION_SECONDS} s ({last}); tasks of bronze_ingestion: {states or 'no run'}")
        time.sleep(1)


def watermarks(bootstrap: str, topic: str) -> dict[int, tuple[int, int]]:
    """First and next offset of each partition of a topic; raises LedgerError when the broker does not answer."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "demo", "enable.auto.commit": False, "log_level": 0})
    try:
        partitions = consumer.list_topics(topic, timeout=15).topics[topic].partitions
        found = {partition: consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=15) for partition in partitions}
        return {partition: (begin, end) for partition, (begin, end) in found.items()}
    except (KafkaException, TypeError) as error:
        raise LedgerError(f"Kafka at {bootstrap} does not tell the offsets of {topic}: {error}") from None
    finally:
        consumer.close()


def report(settings: Settings, api: AirflowApi, run_id: str, state: str) -> int:
    """Print the account, the verdicts, the release and the addresses; returns the exit code."""
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
            wrong.append(f"release {release.release_id} tells {release.rows[name]} rows of {name}, found {rows}")
    account = close_account(settings, release)
    print(f"\nConservation, by coordinates: {account}{' DOES NOT HOLD' if account.differences else ''}")
    return wrong + account.differences


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
