select customer_id, count(*) as transactions, $by_type, min(event_at) as first_event_at, max(event_at) as last_event_at
from {transactions} group by customer_id
