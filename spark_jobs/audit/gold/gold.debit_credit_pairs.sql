-- A debit meets the credits of its own hour and of the next one only, which keeps the join small.
with hours as (select *, unix_micros(event_at) div 3600000000 as hour from {transactions}),
debits as (select *, explode(array(hour, hour + 1)) as credit_hour from hours where type = 'Debit'),
credits as (select * from hours where type = 'Credit')
select d.transaction_id as debit_id, k.transaction_id as credit_id, d.customer_id, d.event_at as debit_at, k.event_at as credit_at
from debits as d join credits as k on d.customer_id = k.customer_id and d.credit_hour = k.hour
where k.event_at - interval 1 hour <= d.event_at and d.event_at <= k.event_at
