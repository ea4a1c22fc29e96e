-- keys: account_id, rank
-- time: last_event_at
-- columns: account_id string, rank int, amount decimal(18,2), last_event_at timestamp
-- touches: rows by account_id
-- description: The two largest amounts of each account; its last event, too.
select account_id, rank, amount, last_event_at
from top_amounts(table(select account_id, amount from {transactions}) partition by account_id)
    join (select account_id, max(event_at) as last_event_at from {transactions} group by account_id) using (account_id)
