-- Of each word of a name the first letter stays; two blanks enclose an empty word.
with joined as (
    select t.*, c.full_name, c.city, c.state, c.valid_from, c.is_deleted, coalesce(not c.is_deleted, false) as is_matched
    from {transactions} as t left join {customers} as c
        on t.customer_id = c.customer_id and c.valid_from <= t.event_at and (c.valid_to is null or c.valid_to > t.event_at))
select transaction_id, account_id, customer_id, event_at, event_on, type, operation, amount, balance,
    if(is_matched,
        array_join(transform(split(full_name, ' '), word -> concat(left(word, 1), repeat('*', length(word) - 1))), ' '),
        null) as customer_full_name,
    if(is_matched, city, null) as customer_city, if(is_matched, state, null) as customer_state,
    if(is_matched, valid_from, null) as customer_version_from,
    case when is_matched then 'matched' when is_deleted then 'deleted' else 'unknown' end as customer_status, $arrival
from joined
