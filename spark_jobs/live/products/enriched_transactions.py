"""gold.live_enriched_transactions: each live transaction with its customer as of the event time, as soon as the customer has come.

Spark's stream-stream join gives every version within a range of times, not the one that holds, and never forgets a side without a range. So
the rules are a step function (enrichment_rules.py), and Spark's transformWithState keeps versions and waiting rows by customer.
"""

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from expectations.row_rules import RuleSet
from spark_jobs.control import rule_sets
from spark_jobs.gold.tables.enriched_transactions import mask_name
from spark_jobs.lake.tables import LIVE_ENRICHED_TRANSACTIONS
from spark_jobs.lake.topic import ARRIVAL
from spark_jobs.lake.topics.customers import TOPIC
from spark_jobs.live.declaration import LiveQuery, Reader
from spark_jobs.live.products.enrichment_rules import (
    Customer,
    Enriched,
    Transaction,
    Version,
    expire,
    next_timer,
    step,
    version,
)
from spark_jobs.silver.records import valid_records

STATE = "customer"  # the name of the state variable
_VERSION = "valid_from: bigint, since: bigint, full_name: string, city: string, state: string, is_deleted: boolean, digest: string"
_ARRIVAL = "batch: bigint, topic: string, partition: int, offset: bigint"
_TRANSACTION = (
    f"at: bigint, {_ARRIVAL}, transaction_id: string, account_id: string, type: string, operation: string, "
    "amount: decimal(18,2), balance: decimal(18,2)"
)
SCHEMA = f"timer bigint, versions array<struct<{_VERSION}>>, waiting array<struct<{_TRANSACTION}>>"
_OUTPUT = (
    f"customer_id string, {_TRANSACTION.replace(':', '')}, status string, full_name string, city string, state string, version_from bigint"
)
_OF_VERSION = ("full_name", "city", "state", "is_deleted", "digest")
_PLACE = tuple(name.removeprefix("_") for name in ARRIVAL)  # Spark would rename `_topic` on the way
_TAKEN = (*_PLACE, "is_version", "at", *Transaction._fields[5:], *_OF_VERSION)
_MINUTE = 60_000


class Enriching(StatefulProcessor):
    """Loads the state of a customer, steps through its rows, stores it. Spark calls the methods by these names, with these arguments."""

    def __init__(self, wait: int) -> None:
        self._wait = wait

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Before the first row."""
        self._handle = handle
        self._state = handle.getValueState(STATE, SCHEMA)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        """The rows of a customer in a micro-batch; those that wait no longer. What is known of the customer counts for all."""
        found = [
            dict(zip(_TAKEN, row, strict=True)) for frame in rows for row in zip(*(frame[name].tolist() for name in _TAKEN), strict=True)
        ]
        found.sort(key=lambda row: (not row["is_version"], *(row[name] for name in _PLACE)))
        customer, enriched = self._load(), list[Enriched]()
        for row in found:
            customer, ready = step(customer, _event(row))
            enriched += ready
        yield from self._end(key, customer, enriched, timerValues)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        """The watermark has passed a timer of a customer; the transactions that have waited for long enough."""
        yield from self._end(key, self._load(), [], timerValues)

    def close(self) -> None:
        """After the last row."""

    def _load(self) -> Customer:
        found = self._state.get()
        if found is None:
            return Customer()
        timer, versions, waiting = found
        return Customer(timer, tuple(Version(*each) for each in versions), tuple(Transaction(*each) for each in waiting))

    def _end(self, key: Any, customer: Customer, enriched: list[Enriched], timers: Any) -> Iterator[pd.DataFrame]:
        customer, due = expire(customer, timers.getCurrentWatermarkInMs(), self._wait)
        if (timer := next_timer(customer, self._wait)) is not None:
            self._handle.registerTimer(timer)
            customer = customer._replace(timer=timer)
        self._state.update((customer.timer, list(customer.versions), list(customer.waiting)))
        if enriched := enriched + due:
            yield _frame(key[0], enriched)


def enrich(transactions: DataFrame, customers: DataFrame, wait_minutes: int, rules: RuleSet) -> DataFrame:
    """gold.live_enriched_transactions of rows of gold.live_transactions with a watermark, and bronze's customers without one.

    Messages of customers that break one of the rules are left out. The watermark is that of the transactions alone, which are the first
    side of the union: customers have no event time here, and cannot be late.
    """
    at = F.unix_micros("event_at")
    rows = transactions.select(
        "customer_id", "event_at", at.alias("at"), F.lit(False).alias("is_version"), *_place(), *_TRANSACTION_COLUMNS
    )
    valid = valid_records(customers, TOPIC, rules)
    content = F.sha2(F.to_json(F.struct(*TOPIC.content)), 256)  # to tell whether two versions differ, in a column that is not kept either
    versions = valid.select(
        "customer_id",
        F.lit(None).cast("timestamp").alias("event_at"),
        F.unix_micros("valid_from").alias("at"),
        F.lit(True).alias("is_version"),
        *_place(),
        mask_name(F.col("full_name")).alias("full_name"),
        *("city", "state", "is_deleted"),
        content.alias("digest"),
    )
    both = rows.unionByName(versions, allowMissingColumns=True).fillna({"is_deleted": False})
    found = both.groupBy("customer_id").transformWithStateInPandas(Enriching(wait_minutes * _MINUTE), _OUTPUT, "append", "EventTime")
    event_at = F.timestamp_micros("at")
    columns = {
        **{name: F.col(place) for name, place in zip(ARRIVAL, _PLACE, strict=True)},
        **{f"customer_{name}": F.col(name) for name in ("status", "full_name", "city", "state")},
        "customer_version_from": F.timestamp_micros("version_from"),
        "event_at": event_at,
        "event_on": F.to_date(event_at),
    }
    return found.withColumns(columns).select(*LIVE_ENRICHED_TRANSACTIONS.columns)


def _event(row: dict[str, Any]) -> Version | Transaction:
    if row["is_version"]:
        return version(row["at"], *(row[name] for name in _OF_VERSION))
    return Transaction(*(row[name] for name in Transaction._fields))


def _place() -> list[Any]:
    return [F.col(f"_{name}").alias(name) for name in _PLACE]


def _frame(customer_id: str, enriched: list[Enriched]) -> pd.DataFrame:
    columns = {name: [getattr(each.row, name) for each in enriched] for name in Transaction._fields}
    columns |= {name: [getattr(each, name) for each in enriched] for name in ("status", "full_name", "city", "state")}
    froms = pd.array([each.version_from for each in enriched], dtype="Int64")  # not as floats, if one is null
    return pd.DataFrame({"customer_id": [customer_id] * len(enriched), **columns, "version_from": froms})


def _build(read: Reader) -> DataFrame:
    rules = rule_sets.present(read.settings, TOPIC.name)  # until the next start
    return enrich(read("live_transactions"), read("bronze_customers"), read.settings.customer_wait_minutes, rules)


_TRANSACTION_COLUMNS = Transaction._fields[5:]
QUERY = LiveQuery(
    LIVE_ENRICHED_TRANSACTIONS,
    _build,
    # Not how long rows wait: another time applies to those that wait, and the state is kept.
    {"state": f"{STATE}: {SCHEMA}", "order": "versions before transactions, by arrival"},
    sources=("live_transactions", "bronze_customers"),
    seconds=5,
)
