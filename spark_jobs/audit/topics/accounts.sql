-- silver.accounts from the fields of a valid message. `_at` is the time of any message; the first column is the key.
select *,
    if(is_deletion, _timestamp, timestamp_millis(if(try_cast(updateTime.text as bigint) between $milliseconds, try_cast(updateTime.text as bigint), null))) as _at,
    struct(
        _key as account_id, try_cast(districtId.text as int) as district_id, frequency.text as frequency,
        try_cast(creationDate.text as date) as creation_date, _at as valid_from, is_deletion as is_deleted) as _typed
from {parsed}
