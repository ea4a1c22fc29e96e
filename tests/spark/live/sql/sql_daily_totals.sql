-- keys: window_start, type
-- time: window_start
-- columns: window_start timestamp, window_end timestamp, type string,
--    transactions bigint, amount decimal(38,2)
-- watermark: event_at
-- description: Count and amount of each day (UTC) and type.
select
    window.start as window_start,
    window.end as window_end,
    type,
    count(*) as transactions,
    cast(sum(amount) as decimal(38,2)) as amount
from {transactions}
group by window(event_at, '1 day'), type
