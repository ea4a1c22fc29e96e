"""Gold's tables over windows of time, from silver, in SQL over all of it. Pure. Windows are [start, end), aligned to the epoch, in UTC."""

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.audit.queries import query

_DAILY = "select $day as window_start, $day + interval 24 hours as window_end, type, $sums from {t} group by 1, 2, type"
_SLIDING = """
    select window_start, window_start + interval 24 hours as window_end, type, $sums
    from (select *, explode(sequence($two_hours - interval 22 hours, $two_hours, interval 2 hours)) as window_start from {t})
    group by window_start, type"""
# Each row counts in every step that ends after it, up to the end of its day.
_CUMULATIVE = """
    select window_start, window_end, type, $sums
    from (
        select *, $day as window_start,
            explode(sequence($two_hours + interval 2 hours, $day + interval 24 hours, interval 2 hours)) as window_end
        from {t})
    group by window_start, window_end, type"""
_SESSIONS = """
    with rows_in_time as (select *, lag(event_at) over (partition by customer_id order by event_at) as before from {t}),
    numbered as (
        select *, count_if(before is null or event_at >= before + interval 12 hours)
            over (partition by customer_id order by event_at) as number
        from rows_in_time)
    select customer_id, min(event_at) as session_start, max(event_at) + interval 12 hours as session_end, $sums
    from numbered group by customer_id, number"""
_WEEKLY = """
    with counts as (select $week as window_start, customer_id, count(*) as transactions from {t} group by 1, customer_id),
    ranked as (select *, row_number() over (partition by window_start order by transactions desc, customer_id) as rank from counts)
    select window_start, window_start + interval 168 hours as window_end, rank, customer_id, transactions from ranked where rank <= 3"""
# Half up in whole numbers: ten thousandths of a percent.
_SHARE = """
    with days as (
        select event_on as day, count_if(type = 'Debit') as debits, count_if(type = 'Credit') as credits from {t} group by event_on),
    sums as (select day, sum(debits) over (order by day) as debits, sum(credits) over (order by day) as credits from days),
    shares as (select *, (2000000 * debits + debits + credits) div (2 * (debits + credits)) as share from sums)
    select day, debits, credits, cast(cast(share as decimal(20,0)) * 0.0001 as decimal(7,4)) as debit_share_percent from shares"""
_TABLES = {
    "gold.daily_totals": _DAILY,
    "gold.sliding_totals": _SLIDING,
    "gold.cumulative_totals": _CUMULATIVE,
    "gold.customer_sessions": _SESSIONS,
    "gold.weekly_top_customers": _WEEKLY,
    "gold.debit_share": _SHARE,
}


def tables_of_times(spark: SparkSession, transactions: DataFrame) -> dict[str, DataFrame]:
    """Totals, sessions, the best of a week and the running share, by name, from all rows of silver.transactions."""
    return {name: query(spark, text, t=transactions) for name, text in _TABLES.items()}
