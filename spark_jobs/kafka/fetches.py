"""Fetches compressed record batches from Kafka, as it stores them. No client library returns them undecoded.

A client decodes everything that a fetch returns, at its full size: 18 kB may become 600 MB in one piece. Here the reader decides.
Fetch request, version 11: https://kafka.apache.org/42/design/protocol/#The_Messages_Fetch
"""

import socket
import struct
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from confluent_kafka import KafkaException

from spark_jobs.kafka.clients import reason
from spark_jobs.kafka.logins import connect, receive
from spark_jobs.kafka.offsets import connected
from spark_jobs.kafka.record_batches import RecordBatch, split
from spark_jobs.kafka.topics import ANSWER_SECONDS
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.kafka_config import Broker

_API, _VERSION, _CLIENT = 1, 11, b"ledger"
_MOST_BYTES = 8 * 2**20  # of an answer; it may be more where a single record batch is
_READ_UNCOMMITTED, _READ_COMMITTED = 0, 1
_TRIES, _WAIT_MS = 20, 500  # until records from remote storage must have come
_HEAD = struct.Struct(">iihii")  # correlation id, throttle time, error, session's id, number of topics
_PARTITION = struct.Struct(">ihqqq")  # number, error, high watermark, last stable offset, first offset
_ABORTED = struct.Struct(">qq")  # producer, first offset
_OUT_OF_RANGE = 1


@dataclass(frozen=True)
class _Answer:
    """What a fetch brought. `end`: the offset after the last record of a transaction that is decided."""

    batches: list[RecordBatch]
    aborted: deque[tuple[int, int]]  # first offset, producer
    end: int


class Fetches:
    """A connection to the leader of each partition of a topic; a context manager. Errors of the broker come out as LedgerError."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self._broker, self._topic = broker, topic
        self._connections: dict[int, socket.socket] = {}
        try:
            known = connected(broker).list_topics(timeout=ANSWER_SECONDS)  # of all: one that is asked for by name might be made
        except KafkaException as error:
            raise self._error(reason(error, broker)) from None
        if topic not in known.topics:
            raise self._error("it is not there")
        self._leaders = {number: found.leader for number, found in known.topics[topic].partitions.items()}
        self._addresses = {number: (str(found.host), found.port) for number, found in known.brokers.items()}

    def __enter__(self) -> "Fetches":
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._connections.values():
            connection.close()

    def batches(self, partition: int, first: int, end: int | None = None) -> Iterator[RecordBatch]:
        """The record batches from the one that holds the offset `first` to the last that begins before `end`, or the log's last.

        Not those of aborted transactions, and not the markers. Raises LedgerError also where Kafka's log does not reach `end`.
        """
        place = first
        while end is None or place < end:
            answer = self._fetch(partition, place)
            if not answer.batches:
                last = answer.end if end is None else end
                if place >= last or self._ends(partition, place, last, answer):
                    return
                continue
            for batch in _committed(answer):
                if end is None or batch.first_offset < end:
                    yield batch
            place = answer.batches[-1].last_offset + 1

    def _ends(self, partition: int, place: int, end: int, answer: _Answer) -> bool:
        """Whether there is no record from `place` to `end`, as an answer without one seems to say; False where it has to be asked again.

        A broker whose older records are in remote storage answers like that, too, where these come too late. So what lies behind them
        must be seen, of open transactions as well. Raises LedgerError where nothing is.
        """
        if answer.end < end:
            raise self._error(f"partition {partition} ends at {answer.end}, expected it to reach {end}")
        for _ in range(_TRIES):
            if following := self._fetch(partition, place, isolation=_READ_UNCOMMITTED, wait_ms=_WAIT_MS).batches:
                return following[0].first_offset >= end
        raise self._error(f"partition {partition} gives no record from offset {place} on, expected some, because its log reaches {end}")

    def _fetch(self, partition: int, offset: int, *, isolation: int = _READ_COMMITTED, wait_ms: int = 0) -> _Answer:
        name = self._topic.encode()
        head = struct.pack(">hhih", _API, _VERSION, 0, len(_CLIENT)) + _CLIENT
        asked = struct.pack(">iiiibii", -1, wait_ms, 1 if wait_ms else 0, _MOST_BYTES, isolation, 0, -1)
        place = struct.pack(">ih", 1, len(name)) + name + struct.pack(">iiiqqi", 1, partition, -1, offset, -1, _MOST_BYTES)
        request = head + asked + place + struct.pack(">ih", 0, 0)
        try:
            connection = self._connect(partition)
            answer = _ask(connection, request)
            while milliseconds := _throttled(answer):
                time.sleep(milliseconds / 1000)
                answer = _ask(connection, request)
        except (OSError, KeyError) as error:
            raise self._error(f"partition {partition}: {error}") from None
        return self._read(answer, partition, offset)

    def _connect(self, partition: int) -> socket.socket:
        leader = self._leaders[partition]
        if leader not in self._connections:
            self._connections[leader] = connect(self._addresses[leader], self._broker.login, ANSWER_SECONDS)
        return self._connections[leader]

    def _read(self, answer: memoryview, partition: int, offset: int) -> _Answer:
        _, _, error, _, _ = _HEAD.unpack_from(answer)
        at = _HEAD.size
        if not error:
            at += 2 + len(self._topic.encode()) + 4
            _, error, _, end, _ = _PARTITION.unpack_from(answer, at)
            at += _PARTITION.size
        if error:
            reason = f"offset {offset} is out of range" if error == _OUT_OF_RANGE else f"Kafka's error {error}"
            raise self._error(f"partition {partition}: {reason}")
        (count,) = struct.unpack_from(">i", answer, at)
        at += 4
        aborted = sorted((first, producer) for producer, first in (_ABORTED.unpack_from(answer, at + 16 * n) for n in range(max(count, 0))))
        at += 16 * max(count, 0) + 4  # and the preferred replica
        (size,) = struct.unpack_from(">i", answer, at)
        try:
            batches = [batch for batch in split(answer[at + 4 : at + 4 + max(size, 0)]) if batch.last_offset >= offset]
        except ValueError as error:
            raise self._error(f"partition {partition}: {error}") from None
        return _Answer(batches, deque(aborted), end)

    def _error(self, found: str) -> LedgerError:
        return LedgerError(f"topic {self._topic} at {self._broker} cannot be read: {found}")


def _ask(connection: socket.socket, request: bytes) -> memoryview:
    connection.sendall(struct.pack(">i", len(request)) + request)
    return receive(connection, *struct.unpack(">i", receive(connection, 4)))


def _throttled(answer: memoryview) -> int:
    """For how many milliseconds a broker with a quota wants to be left alone, where its answer has nothing else; else 0."""
    _, milliseconds, error, _, topics = _HEAD.unpack_from(answer)
    return 0 if error or topics else max(int(milliseconds), 1)


def _committed(answer: _Answer) -> Iterator[RecordBatch]:
    """The batches without those of aborted transactions, as Kafka's own consumer leaves them out."""
    aborting: set[int] = set()
    for batch in answer.batches:
        while answer.aborted and answer.aborted[0][0] <= batch.last_offset:
            aborting.add(answer.aborted.popleft()[1])
        if batch.is_control:
            if batch.is_abort:
                aborting.discard(batch.producer)
        elif not (batch.is_transactional and batch.producer in aborting):
            yield batch
