select transaction_id, event_at, account_id, customer_id, amount, balance, $arrival
from {transactions} where type = 'Credit' and amount > cast({large_credit} as decimal(18,2))
