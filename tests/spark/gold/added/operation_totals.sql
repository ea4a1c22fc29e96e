-- keys: window_start, operation
-- time: window_start
-- columns: window_start timestamp, window_end timestamp, operation string, transactions bigint, amount decimal(38,2)
-- touches: windows of 1 day
-- description: Count and amount of each day (UTC) and operation; an empty operation is ''.
select
    date_trunc('day', event_at) as window_start,
    date_trunc('day', event_at) + interval '1 day' as window_end,
    coalesce(operation, '') as operation,
    count(*) as transactions,
    cast(sum(amount) as decimal(38,2)) as amount
from {transactions}
group by date_trunc('day', event_at), coalesce(operation, '')
