-- silver.customers from the fields of a valid message. `_at` is the time of any message; the first column is the key.
select *,
    if(is_deletion, _timestamp, timestamp_millis(if(try_cast(updateTime.text as bigint) between $milliseconds, try_cast(updateTime.text as bigint), null))) as _at,
    struct(
        _key as customer_id, sex.text as sex, social.text as social, fullName.text as full_name, phone.text as phone,
        email.text as email, address1.text as address1, address2.text as address2, city.text as city, state.text as state,
        zipcode.text as zipcode, try_cast(districtId.text as int) as district_id, try_cast(birthDate.text as date) as birth_date,
        _at as valid_from, is_deletion as is_deleted) as _typed
from {parsed}
