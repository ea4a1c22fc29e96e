"""For each gold table: which silver rows make a cell, and how they do; in SQL, where `$name` is the cell's own value or a part below.

Written apart from the gold job, for DataFusion in place of Spark, so that the one is a check of the other. A plan first keeps `rows`, the
silver rows of the cell; conditions name `event_at` wherever they can, by which files are skipped.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

from spark_jobs.lake import tables
from spark_jobs.lake.tables import Table

Row = dict[str, Any]

# What several plans say in the same words.
PARTS = {
    "count_and_sum": "count(*) as transactions, cast(sum(cast(amount as decimal(38,2))) as decimal(38,2)) as amount",
    "booked": ", ".join(
        f"cast(coalesce(sum(case when type = '{kind}' then cast(amount as decimal(38,2)) end), 0) as decimal(38,2)) as {name}"
        for kind, name in (("Credit", "credits"), ("Debit", "debits"))
    ),
    "newest_first": "event_at desc, _batch desc, _topic desc, _partition desc, _offset desc",
    "in_time": "event_at, _batch, _topic, _partition, _offset",
    "valid_then": "r.event_at >= v.valid_from and (v.valid_to is null or r.event_at < v.valid_to)",
    "micros": "arrow_cast(event_at, 'Int64')",
    "hour": "3600000000",
    "customer": ", ".join(
        f"case when not v.is_deleted then v.{column} end as {name}"
        for name, column in {
            "customer_full_name": "full_name",
            "customer_city": "city",
            "customer_state": "state",
            "customer_version_from": "valid_from",
        }.items()
    ),
}
# Of a cell that is made of everything up to a day: the counts of the days stand for the rows.
DAYS = (
    "select event_on as day, count(case when type = 'Debit' then 1 end) as debits, count(case when type = 'Credit' then 1 end) as credits "
    "from of_cell group by event_on"
)


@dataclass(frozen=True)
class Plan:
    """How a cell is explained.

    `rows` is a condition on silver.transactions. `steps` are tables that are kept in memory after `rows`, by name. `made` gives
    columns of the cell anew, in one row, and `finish` what SQL cannot. `aside` picks rows that stand beside the cell: they explain one
    of its columns, and are not counted in the others.
    """

    table: Table
    rows: str
    made: str
    steps: Mapping[str, str] = field(default_factory=dict)
    dimension: Table | None = None
    aside: str = "false"
    finish: Callable[[Row], Row] = lambda made: made
    note: str = ""

    @property
    def is_of_days(self) -> bool:
        """Whether the cell is made of so many rows that their counts by day stand for them."""
        return self.table == tables.DEBIT_SHARE


def mask_name(name: str | None) -> str | None:
    """A name of which the first letter of each word stays and the rest are stars; words are split at blanks."""
    return None if name is None else re.sub(r"(?<=[^ ])[^ ]", "*", name)


def _masked(made: Row) -> Row:
    return made | {"customer_full_name": mask_name(made["customer_full_name"])}


def _share(made: Row) -> Row:
    """Rounded half up to 4 decimals."""
    all_ = (made["debits"] or 0) + (made["credits"] or 0)
    share = (Decimal(100 * made["debits"]) / Decimal(all_)).quantize(Decimal("0.0001"), ROUND_HALF_UP) if all_ else None
    return made | {"debit_share_percent": share}


def _of_window(table: Table) -> Plan:
    return Plan(table, "event_at >= $window_start and event_at < $window_end and type = $type", "select $count_and_sum from rows")


_PLANS = (
    _of_window(tables.DAILY_TOTALS),
    _of_window(tables.SLIDING_TOTALS),
    _of_window(tables.CUMULATIVE_TOTALS),
    Plan(
        tables.CUSTOMER_SESSIONS,
        "event_at > $session_start - interval '12 hours' and event_at < $session_end and customer_id = $customer_id",
        "select min(event_at) as session_start, max(event_at) + interval '12 hours' as session_end, $count_and_sum "
        "from sessions group by number",
        steps={  # whatever is less than 12 hours before it is a part of it, and would make another session of these rows
            "gaps": "select *, case when $micros - lag($micros) over (order by $in_time) < 12 * $hour then 0 else 1 end as begins "
            "from rows",
            "sessions": "select *, sum(begins) over (order by $in_time) as number from gaps",
        },
    ),
    Plan(
        tables.WEEKLY_TOP_CUSTOMERS,
        "event_at >= $window_start and event_at < $window_end and customer_id = $customer_id",
        "select a.rank, m.transactions from mine m cross join above a",
        steps={
            "counts": "select customer_id, count(*) as transactions from silver "
            "where event_at >= $window_start and event_at < $window_end group by customer_id",
            "mine": "select count(*) as transactions from rows",
            "above": "select count(*) + 1 as rank from counts c cross join mine m where c.transactions > m.transactions "
            "or (c.transactions = m.transactions and c.customer_id < $customer_id)",
        },
        note="its rank is found among the counts of all customers of the week",
    ),
    Plan(
        tables.CUSTOMER_ACTIVITY,
        "customer_id = $customer_id",
        "select count(*) as transactions, $booked, min(event_at) as first_event_at, max(event_at) as last_event_at from rows",
    ),
    Plan(
        tables.LARGE_CREDITS,
        "event_at = $event_at and transaction_id = $transaction_id",
        "select * from rows where type = 'Credit'",
    ),
    Plan(
        tables.ENRICHED_TRANSACTIONS,
        "event_at = $event_at and transaction_id = $transaction_id",
        "select r.*, $customer, case when v.customer_id is null then 'unknown' when v.is_deleted then 'deleted' else 'matched' end as "
        "customer_status from rows r left join versions v on r.customer_id = v.customer_id and $valid_then",
        dimension=tables.SILVER_CUSTOMERS,
        finish=_masked,
    ),
    Plan(
        tables.DEBIT_CREDIT_PAIRS,
        "event_at >= $debit_at and event_at <= $credit_at and transaction_id in ($debit_id, $credit_id)",
        "select d.transaction_id as debit_id, c.transaction_id as credit_id, d.customer_id, d.event_at as debit_at, "
        "c.event_at as credit_at from rows d join rows c on d.customer_id = c.customer_id and d.type = 'Debit' and c.type = 'Credit' "
        "where arrow_cast(c.event_at, 'Int64') - arrow_cast(d.event_at, 'Int64') between 0 and $hour",
    ),
    Plan(
        tables.ACCOUNT_BALANCES,
        "account_id = $account_id",
        "select l.*, s.credits, s.debits, s.transactions from newest l cross join sums s",
        steps={
            "newest": "select balance, event_at as last_event_at, _topic, _partition, _offset, _batch from rows "
            "order by $newest_first limit 1",
            "sums": "select count(*) as transactions, $booked from rows",
        },
    ),
    Plan(
        tables.DISTRICT_MINUTES,
        "event_at >= $minute - interval '4 minutes' and event_at < $minute + interval '1 minute'",
        "select m.transactions, m.amount, cast(f.transactions as decimal(18,1)) / 5 as average_5m from minute m cross join five f",
        steps={
            "located": "select r.*, coalesce(v.district_id, -1) as district_id from rows r "
            "left join versions v on r.account_id = v.account_id and $valid_then",
            "rows": "select * from located where district_id = $district_id",
            "minute": "select $count_and_sum from rows where event_at >= $minute",
            "five": "select count(*) as transactions from rows",
        },
        dimension=tables.SILVER_ACCOUNTS,
        aside="event_at < $minute",
        note="of accounts in its district then; those of the 4 minutes before count in average_5m only",
    ),
    Plan(
        tables.DEBIT_SHARE,
        "event_on <= $day",
        "select max(day) as day, cast(sum(debits) as bigint) as debits, cast(sum(credits) as bigint) as credits from rows",
        finish=_share,
    ),
    Plan(
        tables.ACCOUNT_DAYS,
        "event_on = $day and account_id = $account_id",
        "select o.opening, l.closing, s.credits, s.debits, s.transactions, l.closing - (o.opening + s.credits - s.debits) as difference "
        "from newest l cross join sums s cross join opened o",
        steps={
            "newest": "select balance as closing from rows order by $newest_first limit 1",
            "sums": "select count(*) as transactions, $booked from rows",
            "before": "select balance from silver where event_on < $day and account_id = $account_id order by $newest_first limit 1",
            "opened": "select max(balance) as opening from before",
        },
        note="its opening is the closing of the account's day before",
    ),
)
PLANS = {plan.table: plan for plan in _PLANS}
