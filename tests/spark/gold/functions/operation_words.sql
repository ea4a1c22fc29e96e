-- keys: window_start, word
-- time: window_start
-- columns: window_start timestamp, word string, transactions bigint
-- touches: windows of 1 day
-- description: How many transactions of each day (UTC) have a word in their operation.
select date_trunc('day', event_at) as window_start, word, count(distinct id) as transactions
from split_words(table(select transaction_id, operation from {transactions})) join {transactions} on id = transaction_id
group by date_trunc('day', event_at), word
