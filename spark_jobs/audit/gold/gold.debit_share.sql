-- Half up in whole numbers: ten thousandths of a percent.
with days as (
    select event_on as day, count_if(type = 'Debit') as debits, count_if(type = 'Credit') as credits from {transactions} group by event_on),
sums as (select day, sum(debits) over (order by day) as debits, sum(credits) over (order by day) as credits from days),
shares as (select *, (2000000 * debits + debits + credits) div (2 * (debits + credits)) as share from sums)
select day, debits, credits, cast(cast(share as decimal(20,0)) * 0.0001 as decimal(7,4)) as debit_share_percent from shares
