-- keys: customer_id
-- time: last_event_at
-- columns: customer_id string, transactions bigint, credits decimal(38,2), debits decimal(38,2),
--    first_event_at timestamp, last_event_at timestamp
-- touches: rows by customer_id
with amounts as (
    select *, case when type = 'Credit' then amount else 0 end as credit, case when type = 'Debit' then amount else 0 end as debit
    from {transactions}
)
select
    customer_id,
    count(*) as transactions,
    cast(sum(credit) as decimal(38,2)) as credits,
    cast(sum(debit) as decimal(38,2)) as debits,
    min(event_at) as first_event_at,
    max(event_at) as last_event_at
from amounts
group by customer_id
