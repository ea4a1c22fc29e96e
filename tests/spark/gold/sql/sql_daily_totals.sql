-- keys: window_start, type
-- time: window_start
-- columns: window_start timestamp, window_end timestamp, type string,
--    transactions bigint, amount decimal(38, 2)
-- touches: windows of 1 day
-- description: Count and amount of each day (UTC) and type.
select
    date_trunc('day', event_at) as window_start,
    date_trunc('day', event_at) + interval '24 hours' as window_end,
    type,
    count(*) as transactions,
    cast(sum(amount) as decimal(38,2)) as amount
from {transactions}
group by date_trunc('day', event_at), type;
