with counts as (select $week as window_start, customer_id, count(*) as transactions from {transactions} group by 1, customer_id),
ranked as (select *, row_number() over (partition by window_start order by transactions desc, customer_id) as rank from counts)
select window_start, window_start + interval 168 hours as window_end, rank, customer_id, transactions from ranked where rank <= 3
