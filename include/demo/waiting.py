"""What the demo waits for: Airflow's DAGs, and bronze to hold every record that Kafka has."""

import time

from include.demo.reconciliation import ingested
from include.stack.airflow_api import AirflowApi
from spark_jobs.kafka import offsets
from spark_jobs.lake.tables import BRONZE
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.settings import ROOT, Settings

DAG_SECONDS = 120
INGESTION_SECONDS = 240


class Clock:
    """Prints lines with the seconds since the start."""

    def __init__(self) -> None:
        self._begun = time.monotonic()

    def __call__(self, line: str) -> None:
        """Print one line."""
        print(f"[{time.monotonic() - self._begun:5.0f} s] {line}", flush=True)


def wait_for_dags(api: AirflowApi, *dag_ids: str) -> None:
    """Return when Airflow knows the DAGs; raises LedgerError naming the files that cannot be read."""
    deadline = time.monotonic() + DAG_SECONDS
    while missing := [dag_id for dag_id in dag_ids if not api.has_dag(dag_id)]:
        if errors := api.import_errors():
            raise LedgerError(f"Airflow cannot read {'; '.join(errors)}")
        if time.monotonic() > deadline:
            raise LedgerError(f"Airflow did not find the DAGs {', '.join(missing)} in {ROOT / 'dags'} within {DAG_SECONDS} s")
        time.sleep(0.5)


def wait_for_ingestion(settings: Settings, api: AirflowApi, report: Clock) -> None:
    """Return when bronze holds every record that Kafka has; raises LedgerError when it makes no progress for minutes."""
    wanted = {table: offsets.read_topic(settings, table.topic) for table in BRONZE}
    last, since = "", time.monotonic()
    while True:
        found = {table: ingested(settings, table, table.topic) for table in BRONZE}
        behind = "; ".join(
            f"{table.topic}-{partition} at {at} of {end}"
            for table, topic in wanted.items()
            for partition, end in topic.ends.items()
            if (at := found[table].get(int(partition), (0, 0))[1]) < end and topic.begins[partition] < end
        )
        if not behind:
            counts = (f"{table.name} {sum(count for count, _ in partitions.values())}" for table, partitions in found.items())
            report(f"bronze holds all of Kafka: {', '.join(counts)}")
            return
        if behind != last:
            last, since = behind, time.monotonic()
        if time.monotonic() - since > INGESTION_SECONDS:
            runs = api.runs("bronze_ingestion")
            states = api.task_states("bronze_ingestion", runs[0]) if runs else "no run"
            raise LedgerError(f"bronze has made no progress for {INGESTION_SECONDS} s ({last}); tasks of bronze_ingestion: {states}")
        time.sleep(1)
