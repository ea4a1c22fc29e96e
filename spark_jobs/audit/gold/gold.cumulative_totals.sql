-- Each row counts in every step that ends after it, up to the end of its day.
select window_start, window_end, type, $sums
from (
    select *, $day as window_start,
        explode(sequence($two_hours + interval 2 hours, $day + interval 24 hours, interval 2 hours)) as window_end
    from {transactions})
group by window_start, window_end, type
