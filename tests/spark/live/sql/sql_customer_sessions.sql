-- keys: customer_id, session_start
-- time: session_start
-- columns: customer_id string, session_start timestamp, session_end timestamp,
--    transactions bigint, amount decimal(38,2)
-- watermark: event_at
-- description: As gold.customer_sessions. Spark also joins sessions that touch, so the gap is a millisecond shorter.
select
    customer_id,
    session_window.start as session_start,
    session_window.end + interval '0.001' second as session_end,
    count(*) as transactions,
    cast(sum(cast(amount as decimal(38,2))) as decimal(38,2)) as amount
from {transactions}
group by session_window(event_at, '43199999 milliseconds'), customer_id
