with located as (
    select date_trunc('minute', t.event_at) as minute, coalesce(a.district_id, -1) as district_id, t.amount
    from {transactions} as t left join {accounts} as a
        on t.account_id = a.account_id and a.valid_from <= t.event_at and (a.valid_to is null or a.valid_to > t.event_at)),
minutes as (select minute, district_id, $sums from located group by minute, district_id),
shares as (
    select explode(sequence(minute, minute + interval 4 minutes, interval 1 minute)) as minute, district_id, transactions as share
    from minutes),
means as (
    select minute, district_id, cast(cast(sum(share) as decimal(20,0)) * 0.2 as decimal(18,1)) as average_5m
    from shares group by minute, district_id)
select minute, district_id, transactions, amount, average_5m from minutes join means using (minute, district_id)
