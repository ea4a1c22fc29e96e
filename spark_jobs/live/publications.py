"""What live tables are published as: each row of a table as a record of a topic. How that is done once is in outbox.py."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple

from spark_jobs import control
from spark_jobs.kafka.messages import EPOCH, MILLISECOND, NULL, format_time, quoted, quoted_or_null
from spark_jobs.kafka.topics import ALERTS as ALERTS_TOPIC, CREDITS, DEBITS, KafkaTopic
from spark_jobs.lake.tables import LIVE_ALERTS, LIVE_LOOKUP_ERRORS, LIVE_TRANSACTIONS, Table
from spark_jobs.lake.txn import applied
from spark_jobs.live import checkpoints
from spark_jobs.live.products import alerts
from spark_jobs.runtime.settings import Settings

TOPICS = {"Debit": DEBITS, "Credit": CREDITS}
Row = Mapping[str, Any]


class Message(NamedTuple):
    """A record as it is sent."""

    topic: str
    key: str
    value: str
    headers: Mapping[str, str]


@dataclass(frozen=True)
class Publication:
    """A live table that is published: its rows `where` a condition holds, by the rising numbers in the column `batch`, then by `order`.

    `ready` gives the batch up to which the table is complete; None for none yet. A batch always holds the same rows, unless `by_key`:
    then the keys that the topic holds say which rows were sent.
    """

    name: str
    table: Table
    topics: tuple[KafkaTopic, ...]
    batch: str
    order: str
    to_message: Callable[[Row], Message] = field(repr=False)
    ready: Callable[[Settings], int | None] = field(repr=False)
    where: str = "true"
    by_key: bool = False


def transaction(row: Row) -> Message:
    """A row of gold.live_transactions as the topic `transactions` has it: numbers with all digits, no float in between."""
    fields = {
        "transactionId": quoted(row["transaction_id"]),
        "accountId": quoted(row["account_id"]),
        "customerId": quoted(row["customer_id"]),
        **_time("eventTime", row["event_at"]),
        "type": quoted(row["type"]),
        "operation": quoted_or_null(row["operation"] or ""),
        "amount": _number(row["amount"]),
        "balance": _number(row["balance"]),
    }
    source = f"{row['_topic']}/{row['_partition']}/{row['_offset']}"
    return Message(TOPICS[row["type"]].name, row["transaction_id"], _object(fields), {"source": source})


def alert(row: Row) -> Message:
    """A row of gold.live_alerts, with the rows that caused it and their Kafka records."""
    more = {"found": _number(row["found"]), "allowed": _number(row["allowed"])}
    return _alert(row, row["raised_at"], more, row["caused_by"])


def lookup_error(row: Row) -> Message:
    """A row of gold.live_lookup_errors as an alert, with its cause in place of what was found and allowed."""
    return _alert(row, row["event_at"], {"cause": quoted(row["cause"])}, [row])


def _alerts_ready(settings: Settings) -> int | None:
    generation = checkpoints.read(settings, alerts.QUERY)
    return applied(settings, LIVE_ALERTS, generation.application) if generation else None


def _errors_ready(settings: Settings) -> int | None:
    """Whole batches of bronze go through both queries of the look-ups: what the table has of a batch is all of it."""
    batch: int | None = control.value(LIVE_LOOKUP_ERRORS.open(settings), "select max(_batch) from t")
    return batch


TRANSACTIONS = Publication(
    name="topics",
    table=LIVE_TRANSACTIONS,
    topics=(DEBITS, CREDITS),
    batch="_batch",
    order="_topic, _partition, _offset",
    to_message=transaction,
    ready=checkpoints.intake_batch,
)
ALERTS = Publication(
    name="topic_alerts",
    table=LIVE_ALERTS,
    topics=(ALERTS_TOPIC,),
    batch="_live_batch",
    order="raised_at, alert_id",
    to_message=alert,
    ready=_alerts_ready,
    where="not is_silenced",
    by_key=True,  # after a restored savepoint they are raised again, perhaps in other batches, with the same ids
)
LOOKUP_ERRORS = Publication(
    name="topic_lookup_errors",
    table=LIVE_LOOKUP_ERRORS,
    topics=(ALERTS_TOPIC,),
    batch="_batch",
    order="_topic, _partition, _offset",
    to_message=lookup_error,
    ready=_errors_ready,
    by_key=True,  # look-ups that are made again may fail for other rows of the same batches
)
PUBLICATIONS = (TRANSACTIONS, ALERTS, LOOKUP_ERRORS)


def _alert(row: Row, raised_at: Any, more: Mapping[str, str], caused_by: Iterable[Row]) -> Message:
    causes = [
        _object(
            {
                "transactionId": quoted(cause["transaction_id"]),
                "topic": quoted(cause["_topic"]),
                "partition": str(cause["_partition"]),
                "offset": str(cause["_offset"]),
            }
        )
        for cause in caused_by
    ]
    ids = {"alertId": quoted(row["alert_id"]), "kind": quoted(row["kind"]), "accountId": quoted(row["account_id"])}
    fields = {**ids, **_time("raisedAt", raised_at), **more, "causedBy": f"[{','.join(causes)}]"}
    return Message(ALERTS_TOPIC.name, row["alert_id"], _object(fields), {})


def _time(name: str, time: Any) -> dict[str, str]:
    millis = (time - EPOCH) // MILLISECOND
    return {name: str(millis), f"{name}Formatted": quoted(format_time(millis))}


def _number(number: Decimal | None) -> str:
    return NULL if number is None else format(number, "f")


def _object(fields: Mapping[str, str]) -> str:
    return "{" + ",".join(f'"{name}":{value}' for name, value in fields.items()) + "}"
