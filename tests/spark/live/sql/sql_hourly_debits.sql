-- keys: window_start, operation
-- time: window_start
-- columns: window_start timestamp, window_end timestamp, operation string,
--    debits bigint, amount decimal(38,2)
-- watermark: event_at
-- lateness: 5 minutes
-- description: Count and amount of the debits of each hour (UTC) and operation.
select
    window.start as window_start,
    window.end as window_end,
    coalesce(operation, '') as operation,
    count(*) as debits,
    cast(sum(amount) as decimal(38,2)) as amount
from {transactions}
where type = 'Debit'
group by window(event_at, '1 hour'), coalesce(operation, '')
