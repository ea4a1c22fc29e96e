-- keys: transaction_id
-- time: event_at
-- columns: transaction_id string, event_at timestamp, amount decimal(18,2)
-- watermark: event_at
-- description: Debits of more than 500, as soon as they are taken.
select transaction_id, event_at, amount
from {transactions}
where type = 'Debit' and amount > 500
