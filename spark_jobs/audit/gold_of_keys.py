"""Gold's tables of customers, accounts and single transactions, from silver, in SQL over all of it. Pure. Times are UTC."""

from decimal import Decimal

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.audit.queries import query

_ACTIVITY = """
    select customer_id, count(*) as transactions, $by_type, min(event_at) as first_event_at, max(event_at) as last_event_at
    from {t} group by customer_id"""
_LARGE = """
    select transaction_id, event_at, account_id, customer_id, amount, balance, $arrival
    from {t} where type = 'Credit' and amount > cast({large} as decimal(18,2))"""
# Of each word of a name the first letter stays; two blanks enclose an empty word.
_ENRICHED = """
    with joined as (
        select t.*, c.full_name, c.city, c.state, c.valid_from, c.is_deleted, coalesce(not c.is_deleted, false) as is_matched
        from {t} as t left join {c} as c
            on t.customer_id = c.customer_id and c.valid_from <= t.event_at and (c.valid_to is null or c.valid_to > t.event_at))
    select transaction_id, account_id, customer_id, event_at, event_on, type, operation, amount, balance,
        if(is_matched,
            array_join(transform(split(full_name, ' '), word -> concat(left(word, 1), repeat('*', length(word) - 1))), ' '),
            null) as customer_full_name,
        if(is_matched, city, null) as customer_city, if(is_matched, state, null) as customer_state,
        if(is_matched, valid_from, null) as customer_version_from,
        case when is_matched then 'matched' when is_deleted then 'deleted' else 'unknown' end as customer_status, $arrival
    from joined"""
# A debit meets the credits of its own hour and of the next one only, which keeps the join small.
_PAIRS = """
    with hours as (select *, unix_micros(event_at) div 3600000000 as hour from {t}),
    debits as (select *, explode(array(hour, hour + 1)) as credit_hour from hours where type = 'Debit'),
    credits as (select * from hours where type = 'Credit')
    select d.transaction_id as debit_id, k.transaction_id as credit_id, d.customer_id, d.event_at as debit_at, k.event_at as credit_at
    from debits as d join credits as k on d.customer_id = k.customer_id and d.credit_hour = k.hour
    where k.event_at - interval 1 hour <= d.event_at and d.event_at <= k.event_at"""
_BALANCES = """
    with sums as (select account_id, $by_type, count(*) as transactions from {t} group by account_id),
    ranked as (select *, row_number() over (partition by account_id order by event_at desc, $last_arrival_first) as rank from {t})
    select account_id, balance, event_at as last_event_at, credits, debits, transactions, $arrival
    from ranked join sums using (account_id) where rank = 1"""
_DAYS = """
    with sums as (select account_id, event_on, $by_type, count(*) as transactions from {t} group by account_id, event_on),
    ranked as (
        select account_id, event_on, balance as closing,
            row_number() over (partition by account_id, event_on order by event_at desc, $last_arrival_first) as rank
        from {t}),
    days as (
        select *, lag(closing) over (partition by account_id order by event_on) as opening
        from ranked join sums using (account_id, event_on) where rank = 1)
    select account_id, event_on as day, opening, closing, credits, debits, transactions,
        cast(closing - opening - credits + debits as decimal(38,2)) as difference
    from days"""
_MINUTES = """
    with located as (
        select date_trunc('minute', t.event_at) as minute, coalesce(a.district_id, -1) as district_id, t.amount
        from {t} as t left join {a} as a
            on t.account_id = a.account_id and a.valid_from <= t.event_at and (a.valid_to is null or a.valid_to > t.event_at)),
    minutes as (select minute, district_id, $sums from located group by minute, district_id),
    shares as (
        select explode(sequence(minute, minute + interval 4 minutes, interval 1 minute)) as minute, district_id, transactions as share
        from minutes),
    means as (
        select minute, district_id, cast(cast(sum(share) as decimal(20,0)) * 0.2 as decimal(18,1)) as average_5m
        from shares group by minute, district_id)
    select minute, district_id, transactions, amount, average_5m from minutes join means using (minute, district_id)"""


def tables_of_keys(
    spark: SparkSession, transactions: DataFrame, customers: DataFrame, accounts: DataFrame, large_credit: Decimal
) -> dict[str, DataFrame]:
    """Activity, balances, days, enriched and large transactions, pairs and minutes of districts, by name, from all rows of silver."""
    t = transactions
    return {
        "gold.customer_activity": query(spark, _ACTIVITY, t=t),
        "gold.large_credits": query(spark, _LARGE, t=t, large=str(large_credit)),
        "gold.enriched_transactions": query(spark, _ENRICHED, t=t, c=customers),
        "gold.debit_credit_pairs": query(spark, _PAIRS, t=t),
        "gold.account_balances": query(spark, _BALANCES, t=t),
        "gold.district_minutes": query(spark, _MINUTES, t=t, a=accounts),
        "gold.account_days": query(spark, _DAYS, t=t),
    }
