-- keys: day
-- time: day
-- columns: day date, debits bigint, credits bigint, debit_share_percent decimal(7,4)
-- touches: all
with days as (
    select cast(window_start as date) as day,
        sum(case when type = 'Debit' then transactions else 0 end) as debits,
        sum(case when type = 'Credit' then transactions else 0 end) as credits
    from {gold.sql_daily_totals}
    group by cast(window_start as date)
),
sums as (
    select day, sum(debits) over (order by day) as debits, sum(credits) over (order by day) as credits from days
)
select day, debits, credits,
    cast(round(cast(100 * debits as decimal(20,0)) / cast(debits + credits as decimal(20,0)), 4) as decimal(7,4)) as debit_share_percent
from sums
