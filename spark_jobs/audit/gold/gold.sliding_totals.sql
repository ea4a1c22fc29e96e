select window_start, window_start + interval 24 hours as window_end, type, $sums
from (select *, explode(sequence($two_hours - interval 22 hours, $two_hours, interval 2 hours)) as window_start from {transactions})
group by window_start, type
