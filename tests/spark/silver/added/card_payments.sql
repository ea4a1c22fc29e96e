-- silver.card_payments from the fields of a valid row. `_at` is the time of any row; the first column is the key.
select *,
    timestamp_millis(if(try_cast(paidTime.text as bigint) between $milliseconds, try_cast(paidTime.text as bigint), null)) as _at,
    struct(
        paymentId.text as payment_id, cardId.text as card_id, nullif(merchant.text, '') as merchant,
        _at as event_at, cast(_at as date) as event_on,
        timestamp_millis(try_cast(bookedTime.text as bigint)) as booked_time,
        try_cast(amount.text as decimal(18,2)) as amount, try_cast(installments.text as int) as installments) as _typed
from {parsed}
