-- silver.branches from the fields of a valid message. `_at` is the time of any message; the first column is the key.
select *,
    if(is_deletion, _timestamp,
        timestamp_millis(if(try_cast(updateTime.text as bigint) between $milliseconds, try_cast(updateTime.text as bigint), null))) as _at,
    struct(
        _key as branch_id, city.text as city, try_cast(employees.text as int) as employees,
        try_cast(openedDate.text as date) as opened_date, _at as valid_from, is_deletion as is_deleted) as _typed
from {parsed}
