"""How fast a stream goes: how many records a batch may bring, and whether it keeps up. Numbers in, numbers out."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

KEEPING_UP, FALLING_BEHIND, OVERLOADED = "keeping up", "falling behind", "overloaded"

FLOOR, CEILING, FIRST = 10_000, 500_000, 100_000  # records a batch
CATCH_UP = 1_000_000  # of a query that ends when all is read: nobody waits for a batch, and silver takes as many at a time
BATCH_SECONDS = 10.0  # what a full batch should take
_BEHIND_SECONDS = 3 * BATCH_SECONDS
_WINDOW_SECONDS = 60.0
_FULL = 0.8  # of the limit: such a batch shows what can be done
_MOST_SAMPLES = 3_600

Ends = Mapping[int, int]  # partition -> offset


def next_limit(limit: int, records: int, seconds: float) -> int:
    """How many records a batch may bring after one that brought so many in so many seconds; the same where it tells nothing new.

    Changed only where the batch time would be off by more than half, because a change restarts the query.
    """
    if records < _FULL * limit or seconds <= 0:
        return limit
    wanted = max(FLOOR, min(CEILING, round(records * BATCH_SECONDS / seconds)))
    return wanted if wanted <= limit / 1.5 or wanted >= limit * 1.5 else limit


@dataclass
class Pace:
    """What was measured of a topic: Kafka's ends, the batches' records and seconds. Times in seconds of any one clock."""

    arrived: list[tuple[float, int, Ends]] = field(default_factory=list)  # time, sum of ends, ends
    batches: deque[tuple[float, int, float]] = field(default_factory=lambda: deque(maxlen=_MOST_SAMPLES))  # time, records, seconds

    def saw(self, now: float, ends: Ends) -> None:
        """Kafka ends there now."""
        self.arrived.append((now, sum(ends.values()), dict(ends)))
        if len(self.arrived) > _MOST_SAMPLES:  # hours of lag: half as many of the older ones tell as much
            half = _MOST_SAMPLES // 2
            self.arrived[:half] = self.arrived[:half:2]

    def took(self, now: float, records: int, seconds: float) -> None:
        """A batch ended that brought records."""
        self.batches.append((now, records, seconds))

    def arrival_rate(self, now: float) -> float:
        """Records a second that Kafka got, over the last minute."""
        recent = [(at, total) for at, total, _ in self.arrived if now - at <= _WINDOW_SECONDS]
        if len(recent) < 2 or recent[-1][0] == recent[0][0]:
            return 0.0
        return max(0.0, (recent[-1][1] - recent[0][1]) / (recent[-1][0] - recent[0][0]))

    def processing_rate(self, now: float) -> float:
        """Records a second that batches brought while they ran, over the last minute; small batches could have brought more."""
        recent = [(records, seconds) for at, records, seconds in self.batches if now - at <= _WINDOW_SECONDS]
        busy = sum(seconds for _, seconds in recent)
        return sum(records for records, _ in recent) / busy if busy else 0.0

    def lag(self, now: float, reached: Ends) -> tuple[int, float]:
        """Records that wait after these offsets, and for how many seconds the oldest of them was seen to."""
        if not self.arrived:
            return 0, 0.0
        keep = (n for n, (at, _, ends) in enumerate(self.arrived) if _waits(ends, reached) or now - at <= _WINDOW_SECONDS)
        del self.arrived[: next(keep, len(self.arrived) - 1)]
        records = sum(max(0, end - reached.get(partition, 0)) for partition, end in self.arrived[-1][2].items())
        since = next((at for at, _, ends in self.arrived if _waits(ends, reached)), now)
        return records, (now - since if records else 0.0)

    def state(self, now: float, reached: Ends) -> str:
        """`falling behind`: records wait for longer than three full batches take; `overloaded`: and more come than can be done."""
        _, seconds = self.lag(now, reached)
        if seconds <= _BEHIND_SECONDS:
            return KEEPING_UP
        return OVERLOADED if self.arrival_rate(now) > self.processing_rate(now) else FALLING_BEHIND


def _waits(ends: Ends, reached: Ends) -> bool:
    return any(end > reached.get(partition, 0) for partition, end in ends.items())
