"""What is sent, in which order: rows, their extra copies, and at the end the late ones. Pure: the clock is handed in."""

import heapq
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

from include.producer.faults import DUPLICATE, LATE, conflicting_copy, malformed_copy
from include.producer.records import Message, Record, encode
from spark_jobs.kafka.messages import format_time, quoted
from spark_jobs.lake.topic import Topic
from spark_jobs.lake.topics import BY_TOPIC

CONFLICTING_SHARE = 0.1  # of the duplicates of transactions
FARTHEST_COPY = 1000  # a copy follows its row at once or after up to so many other rows

Clock = Callable[[], int]  # the present in epoch milliseconds


@dataclass(frozen=True)
class Source:
    """The rows of one topic. `records` starts over at every call; `rows` is about how many there are (for progress)."""

    topic: str
    records: Callable[[], Iterator[Record]]
    rows: int


@dataclass(frozen=True)
class Disturbances:
    """What is done to the rows. Shares are 0..1 of the rows of every topic; the same seed gives the same messages.

    `shuffle_seconds`: events are sent up to that much event time later than their place in the file. With event
    time `now` an event is stamped with the time of sending, less a random part of `shuffle_seconds`.
    """

    duplicates: float = 0.0
    malformed: float = 0.0
    late: float = 0.0
    shuffle_seconds: float = 0.0
    event_time: Literal["file", "now"] = "file"
    seed: int = 0


def plan_messages(sources: Sequence[Source], disturb: Disturbances = Disturbances(), clock: Clock | None = None) -> Iterator[Message]:
    """Every message in the order of sending; from the first `late` one on, all are late rows and copies of these.

    The late rows are kept in memory until the end. `clock` is needed for event time `now`.
    """
    held_back: list[Message] = []
    for source in sources:
        yield from _plan_topic(source, disturb, clock, held_back)
    yield from held_back


def _plan_topic(source: Source, disturb: Disturbances, clock: Clock | None, held_back: list[Message]) -> Iterator[Message]:
    random = Random(f"{disturb.seed} faults of {source.topic}")
    copies: list[tuple[int, int, Message]] = []  # a heap: (row after which it is sent, order, copy)
    order = itertools.count()
    disturbed = bool(disturb.duplicates or disturb.malformed or disturb.late)

    for place, record in enumerate(_in_order_of_sending(source, disturb, clock)):
        message = Message(record.topic, record.key, encode(record))
        if not disturbed:
            yield message
            continue
        if random.random() < disturb.malformed and (malformed := malformed_copy(record, random)):
            # Before the good row: compaction of a topic keeps the last message of a key.
            yield malformed
        late = random.random() < disturb.late
        copy = _duplicate(record, message, random) if random.random() < disturb.duplicates else None
        if late:
            held_back.append(message._replace(injected=LATE))
            held_back.extend([copy] if copy else [])
        else:
            yield message
            if copy:
                distance = random.randrange(FARTHEST_COPY) if random.random() < 0.5 else 0
                heapq.heappush(copies, (place + distance, next(order), copy))
        while copies and copies[0][0] <= place:
            yield heapq.heappop(copies)[2]
    while copies:
        yield heapq.heappop(copies)[2]


def _duplicate(record: Record, message: Message, random: Random) -> Message:
    conflicting = conflicting_copy(record) if random.random() < CONFLICTING_SHARE else None
    return conflicting or message._replace(injected=DUPLICATE)


def _in_order_of_sending(source: Source, disturb: Disturbances, clock: Clock | None) -> Iterator[Record]:
    records, topic = source.records(), BY_TOPIC[source.topic]
    if topic.has_versions:
        return records
    random = Random(f"{disturb.seed} order of {source.topic}")
    if disturb.event_time == "now":
        if clock is None:
            raise ValueError("event time `now` needs a clock")
        return _stamped(records, topic, clock, disturb.shuffle_seconds, random)
    return _shuffled(records, disturb.shuffle_seconds, random) if disturb.shuffle_seconds else records


def _stamped(records: Iterator[Record], topic: Topic, clock: Clock, shuffle_seconds: float, random: Random) -> Iterator[Record]:
    for record in records:
        if record.event_ms is None:
            yield record  # a time that could not be read stays so
            continue
        event_ms = clock() - int(random.random() * shuffle_seconds * 1000)
        stamped = record.replaced(**{topic.kind.time: str(event_ms), topic.in_words: quoted(format_time(event_ms))})
        yield stamped._replace(event_ms=event_ms)


def _shuffled(records: Iterator[Record], seconds: float, random: Random) -> Iterator[Record]:
    """Each record is due at its event time plus a random delay; rows without a time are due with their neighbours."""
    waiting: list[tuple[float, int, Record]] = []
    newest = float("-inf")
    for place, record in enumerate(records):
        if record.event_ms is not None:
            newest = max(newest, record.event_ms)
        due = (newest if record.event_ms is None else record.event_ms) + random.random() * seconds * 1000
        heapq.heappush(waiting, (due, place, record))
        while waiting and waiting[0][0] < newest:
            yield heapq.heappop(waiting)[2]
    while waiting:
        yield heapq.heappop(waiting)[2]
