with sums as (select account_id, event_on, $by_type, count(*) as transactions from {transactions} group by account_id, event_on),
ranked as (
    select account_id, event_on, balance as closing,
        row_number() over (partition by account_id, event_on order by event_at desc, $last_arrival_first) as rank
    from {transactions}),
days as (
    select *, lag(closing) over (partition by account_id order by event_on) as opening
    from ranked join sums using (account_id, event_on) where rank = 1)
select account_id, event_on as day, opening, closing, credits, debits, transactions,
    cast(closing - opening - credits + debits as decimal(38,2)) as difference
from days
