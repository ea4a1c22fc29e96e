-- keys: customer_id
-- time: last_event_at
-- columns: customer_id string, customer_name string, transactions bigint, last_event_at timestamp
-- touches: rows by customer_id
-- description: Every customer with transactions, under the present name, masked.
select t.customer_id, mask_name(c.full_name) as customer_name, count(*) as transactions, max(t.event_at) as last_event_at
from {transactions} as t left join {customers} as c on t.customer_id = c.customer_id and c.is_current
group by t.customer_id, c.full_name
