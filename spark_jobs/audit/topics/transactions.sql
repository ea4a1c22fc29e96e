-- silver.transactions from the fields of a valid row. `_at` is the time of any row; the first column is the key.
select *,
    timestamp_millis(if(try_cast(eventTime.text as bigint) between $milliseconds, try_cast(eventTime.text as bigint), null)) as _at,
    struct(
        transactionId.text as transaction_id, accountId.text as account_id, customerId.text as customer_id,
        _at as event_at, cast(_at as date) as event_on, type.text as type, nullif(operation.text, '') as operation,
        try_cast(amount.text as decimal(18,2)) as amount, try_cast(balance.text as decimal(18,2)) as balance) as _typed
from {parsed}
