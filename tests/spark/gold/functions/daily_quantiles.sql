-- keys: window_start, type
-- time: window_start
-- columns: window_start timestamp, type string, median decimal(18,2), percentile_90 decimal(18,2), percentile_99 decimal(18,2)
-- touches: windows of 1 day
-- description: Amounts of each day (UTC) and type that 50, 90 and 99 % of the amounts do not exceed.
with days as (
    select date_trunc('day', event_at) as window_start, type, exact_quantiles(amount, array(0.5, 0.9, 0.99)) as amounts
    from {transactions}
    group by date_trunc('day', event_at), type
)
select window_start, type, amounts[0] as median, amounts[1] as percentile_90, amounts[2] as percentile_99 from days
