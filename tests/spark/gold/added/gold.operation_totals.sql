select $day as window_start, $day + interval 24 hours as window_end, coalesce(operation, '') as operation, $sums
from {transactions} group by 1, 2, 3
