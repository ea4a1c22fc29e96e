"""Kafka offsets: what bronze holds, and from where a new checkpoint starts."""

import json
from datetime import datetime

from confluent_kafka import Consumer, KafkaException, TopicPartition
from deltalake import DeltaTable

from spark_jobs.errors import LedgerError, SettingsError
from spark_jobs.settings import Settings
from spark_jobs.tables import Table
from spark_jobs.topics import ANSWER_SECONDS

Offsets = dict[str, dict[str, int]]  # topic -> partition -> offset


def check_start(start: str | None) -> None:
    """Refuse, with SettingsError, a starting point that is none."""
    if start is not None and start not in ("earliest", "latest", "committed"):
        parse_time(start)


def known_offsets(settings: Settings, table: Table) -> Offsets:
    """The last offset that bronze holds of each partition."""
    columns = ["_topic", "_partition", "_offset"]
    rows = DeltaTable(str(table.path(settings))).to_pyarrow_table(columns=columns)
    known: Offsets = {}
    for row in rows.group_by(["_topic", "_partition"]).aggregate([("_offset", "max")]).to_pylist():
        known.setdefault(row["_topic"], {})[str(row["_partition"])] = row["_offset_max"]
    return known


def starting_offsets_json(settings: Settings, topic: str, start: str, known: Offsets) -> str:
    """`earliest`, `latest`, `committed` (behind bronze's last) or an ISO 8601 time with zone, as Spark's startingOffsets.

    Raises SettingsError for anything else, LedgerError when the broker does not answer.
    """
    if start == "earliest":
        return "earliest"
    consumer = Consumer({"bootstrap.servers": settings.broker(), "group.id": "ledger-offsets", "enable.auto.commit": False, "log_level": 0})
    try:
        partitions = [TopicPartition(topic, number) for number in consumer.list_topics(topic, ANSWER_SECONDS).topics[topic].partitions]
        if start == "latest":
            ends = {p.partition: consumer.get_watermark_offsets(p, ANSWER_SECONDS)[1] for p in partitions}
        elif start == "committed":
            ends = {p.partition: known.get(topic, {}).get(str(p.partition), -3) + 1 for p in partitions}  # -2: earliest
        else:
            at = round(parse_time(start).timestamp() * 1000)
            wanted = [TopicPartition(topic, p.partition, at) for p in partitions]
            found = consumer.offsets_for_times(wanted, ANSWER_SECONDS)
            ends = {p.partition: p.offset if p.offset >= 0 else -1 for p in found}  # -1: latest
    except KafkaException as error:
        raise LedgerError(f"Kafka at {settings.broker()} does not answer ({error.args[0].str()}): is the broker up?") from None
    finally:
        consumer.close()
    return json.dumps({topic: {str(partition): offset for partition, offset in sorted(ends.items())}})


def parse_time(text: str) -> datetime:
    """An ISO 8601 time with a zone; raises SettingsError for one without, or for anything else."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise SettingsError(
            f"--starting-offsets: found {text!r}, expected earliest, latest, committed or a time such as 2026-01-01T01:00:00+02:00"
        ) from None
    if at.tzinfo is None:
        raise SettingsError(f"--starting-offsets: found {text!r} without a zone, expected one, such as {text}Z or {text}+02:00")
    return at
