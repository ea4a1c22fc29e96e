"""gold.account_balances: per account the balance after its last transaction, and sums of credits and debits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_jobs.gold.declaration import Cell, GoldTable
from spark_jobs.gold.strategies import Keys
from spark_jobs.gold.sums import ADD_BOOKED, BOOKED, last_of, total
from spark_jobs.lake.silver_tables import ARRIVAL
from spark_jobs.runtime.late_spark import F

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

_PLACE = ("last_event_at", "_batch", "_topic", "_partition", "_offset")
_OF_LAST_ROW = ("balance", "last_event_at", "_topic", "_partition", "_offset", "_batch")


def account_balances(transactions: DataFrame, per: Sequence[str] = ("account_id",)) -> DataFrame:
    """gold.account_balances of some silver rows: per account the balance of the last row by (event_at, arrival), and sums."""
    last = F.max_by(F.struct("balance", "event_at", *ARRIVAL), F.struct("event_at", *ARRIVAL))
    return (
        transactions.groupBy(*per)
        .agg(
            last.alias("last"),
            total("amount", "Credit").alias("credits"),
            total("amount", "Debit").alias("debits"),
            F.count("*").alias("transactions"),
        )
        .select(
            *per,
            "last.balance",
            F.col("last.event_at").alias("last_event_at"),
            "credits",
            "debits",
            "transactions",
            *(f"last.{name}" for name in ("_topic", "_partition", "_offset", "_batch")),
        )
    )


def _is_later() -> str:
    """Whether the contribution's last row comes after the table's, in SQL that DataFusion understands, too."""
    steps = [" and ".join([*(f"s.{name} = t.{name}" for name in _PLACE[:n]), f"s.{_PLACE[n]} > t.{_PLACE[n]}"]) for n in range(len(_PLACE))]
    return " or ".join(f"({step})" for step in steps)


TABLE = GoldTable(
    "gold.account_balances",
    """account_id string, balance decimal(18,2), last_event_at timestamp, credits decimal(38,2), debits decimal(38,2),
    transactions bigint, _topic string, _partition int, _offset bigint, _batch bigint""",
    keys=("account_id",),
    time_column="last_event_at",
    texts={"balance": "Balance after the last transaction"},
    strategy=Keys(
        account_balances,
        "account_id",
        sums=BOOKED | {name: last_of("event_at" if name == "last_event_at" else name) for name in _OF_LAST_ROW},
        adds=ADD_BOOKED | {name: f"case when {_is_later()} then s.{name} else t.{name} end" for name in _OF_LAST_ROW},
    ),
    cell=Cell(
        rows="account_id = $account_id",
        made="select l.*, s.credits, s.debits, s.transactions from newest l cross join sums s",
        steps={
            "newest": "select balance, event_at as last_event_at, _topic, _partition, _offset, _batch from rows "
            "order by $newest_first limit 1",
            "sums": "select count(*) as transactions, $booked from rows",
        },
    ),
)
