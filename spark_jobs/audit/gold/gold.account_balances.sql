with sums as (select account_id, $by_type, count(*) as transactions from {transactions} group by account_id),
ranked as (select *, row_number() over (partition by account_id order by event_at desc, $last_arrival_first) as rank from {transactions})
select account_id, balance, event_at as last_event_at, credits, debits, transactions, $arrival
from ranked join sums using (account_id) where rank = 1
