"""gold.live_alerts: what alert_rules.py raises for each account, over gold.live_transactions, with the state of Spark's transformWithState.

Spark gives a row of a key to Python, with the key's state; no operator of its own counts over windows that end at each row, remembers which
rows an alert has had, or fires without input. A micro-batch brings whole batches of bronze, whose rows are put in order here: so the alerts
do not depend on how micro-batches cut the input.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from spark_jobs.control import alert_silences
from spark_jobs.lake.tables import LIVE_ALERTS
from spark_jobs.live.declaration import LiveQuery, Reader
from spark_jobs.live.products.alert_rules import Account, Alert, Limits, Row, expire, next_timer, take
from spark_jobs.runtime.settings import Settings

STATE = "account"  # the name of the state variable
_PLACE = "at: bigint, transaction_id: string, topic: string, partition: int, offset: bigint"
_ROW = f"struct<{_PLACE}, amount: decimal(18,2), is_counted: boolean, is_summed: boolean>"
SCHEMA = f"rows bigint, debits bigint, debited decimal(38,2), is_silent boolean, timer bigint, last {_ROW}, recent array<{_ROW}>"
_OUTPUT = (
    "alert_id string, kind string, account_id string, raised_ms bigint, found decimal(38,2), allowed decimal(38,2), "
    "caused_by array<struct<transaction_id: string, _topic: string, _partition: int, _offset: bigint>>"
)
_TAKEN = ("batch", "at", "topic", "partition", "offset", "transaction_id", "amount", "is_debit")  # the first five order the rows


class Alerting(StatefulProcessor):
    """Loads the state of an account, steps through its rows, stores it. Spark calls the methods by these names, with these arguments."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Before the first row."""
        self._handle = handle
        self._state = handle.getValueState(STATE, SCHEMA)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        """The rows of an account in a micro-batch; the alerts that they raise."""
        account, alerts = self._load(), list[Alert]()
        found = (row for frame in rows for row in zip(*(frame[name].tolist() for name in _TAKEN), strict=True))
        for _, at, topic, partition, offset, transaction_id, amount, is_debit in sorted(found):
            account, raised = take(account, Row(at, transaction_id, topic, partition, offset, amount), is_debit, self._limits)
            alerts += raised
        self._store(account)
        if alerts:
            yield _frame(key[0], alerts)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        """The watermark has passed a timer of an account; its silence, if it is silent."""
        account, alerts = expire(self._load(), timerValues.getCurrentWatermarkInMs(), self._limits)
        self._store(account)
        if alerts:
            yield _frame(key[0], alerts)

    def close(self) -> None:
        """After the last row."""

    def _load(self) -> Account:
        found = self._state.get()
        if found is None:
            return Account()
        account = Account(*found)
        last = None if account.last is None else Row(*account.last)
        return account._replace(last=last, recent=tuple(Row(*row) for row in account.recent))

    def _store(self, account: Account) -> None:
        if (due := next_timer(account, self._limits)) is not None:
            self._handle.registerTimer(due)
            account = account._replace(timer=due)
        self._state.update(tuple(account._replace(recent=list(account.recent))))  # type: ignore[arg-type]  # an array is a list


def alerts(transactions: DataFrame, limits: Limits) -> DataFrame:
    """gold.live_alerts of rows of gold.live_transactions with a watermark, without what is known only when they are written."""
    rows = transactions.select(
        *("account_id", "event_at", "transaction_id", "amount"),
        *(F.col(f"_{name}").alias(name) for name in ("topic", "partition", "offset", "batch")),  # Spark would rename `_topic` on the way
        F.unix_millis("event_at").alias("at"),
        (F.col("type") == "Debit").alias("is_debit"),
    )
    raised = rows.groupBy("account_id").transformWithStateInPandas(Alerting(limits), _OUTPUT, "append", "EventTime")
    return raised.withColumn("raised_at", F.timestamp_millis("raised_ms")).drop("raised_ms")


def limits_of(settings: Settings) -> Limits:
    """The thresholds that are set."""
    return Limits(
        settings.alert_debits,
        settings.alert_money,
        settings.alert_times,
        settings.alert_silence_days,
        settings.allowed_lateness_seconds * 1000,
    )


def mark_silenced(raised: DataFrame, settings: Settings) -> DataFrame:
    """Alerts with `is_silenced`: whether an operator has silenced their account now."""
    silenced = alert_silences.in_effect(settings, datetime.now(UTC))
    return raised.withColumn("is_silenced", F.col("account_id").isin(list(silenced)) if silenced else F.lit(False))


def _frame(account_id: str, alerts: list[Alert]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "alert_id": [alert.alert_id for alert in alerts],
            "kind": [alert.kind for alert in alerts],
            "account_id": account_id,
            "raised_ms": [alert.raised_at for alert in alerts],
            "found": [alert.found for alert in alerts],
            "allowed": [alert.allowed for alert in alerts],
            "caused_by": [
                [
                    {"transaction_id": row.transaction_id, "_topic": row.topic, "_partition": row.partition, "_offset": row.offset}
                    for row in alert.caused_by
                ]
                for alert in alerts
            ],
        }
    )


def _build(read: Reader) -> DataFrame:
    return alerts(read("live_transactions"), limits_of(read.settings))


QUERY = LiveQuery(
    LIVE_ALERTS,
    _build,
    # Not the thresholds: new ones apply to new rows, and the state is kept.
    {"state": f"{STATE}: {SCHEMA}", "windows": "10 minutes up to each debit", "order": "batch, event time, coordinates"},
    seconds=5,
    finish=mark_silenced,
)
