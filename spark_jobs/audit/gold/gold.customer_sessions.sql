with rows_in_time as (select *, lag(event_at) over (partition by customer_id order by event_at) as before from {transactions}),
numbered as (
    select *, count_if(before is null or event_at >= before + interval 12 hours)
        over (partition by customer_id order by event_at) as number
    from rows_in_time)
select customer_id, min(event_at) as session_start, max(event_at) + interval 12 hours as session_end, $sums
from numbered group by customer_id, number
