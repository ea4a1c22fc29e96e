"""What the demo waits for: Airflow's DAGs, and bronze to hold every record that Kafka has."""

import time

from confluent_kafka import Consumer, KafkaException, TopicPartition

from include.demo.reconciliation import ingested
from include.stack.airflow_api import AirflowApi
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
            raise LedgerError(
                f"bronze has made no progress for {INGESTION_SECONDS} s ({last}); tasks of bronze_ingestion: {states or 'no run'}"
            )
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
