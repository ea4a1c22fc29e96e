-- keys: window_start, type
-- time: window_start
-- columns: window_start timestamp, window_end timestamp, type string,
--    transactions bigint, amount decimal(38,2)
-- watermark: event_at
-- lateness: 2 hours
-- description: As gold.sliding_totals, two hours later.
with parts as (
    select window(event_at, '1 day', '2 hours') as part, type, amount from {transactions}
)
select
    part.start as window_start,
    part.end as window_end,
    type,
    count(*) as transactions,
    cast(sum(amount) as decimal(38,2)) as amount
from parts
group by part, type;
