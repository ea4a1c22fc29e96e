"""Sends messages to Kafka and counts what the broker acknowledged."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, KafkaException, Message as Delivered, Producer

from include.producer.faults import INJECTED_HEADER, LATE
from include.producer.records import Message
from spark_jobs.kafka.clients import client_config
from spark_jobs.runtime.kafka_config import Broker

log = logging.getLogger(__name__)

Headers = list[tuple[str, str | bytes | None]]
Part = tuple[str, str | None]  # topic and what was injected (None: a plain row)

_POLL_EVERY = 500  # messages between two looks at the acknowledgements
_LEAST_WAIT = 0.02  # seconds; librdkafka gathers messages for as long before it sends them, and shorter waits keep a core busy
_CONFIG: dict[str, str | int | float | bool] = {
    "acks": "all",
    "enable.idempotence": True,
    "compression.type": "lz4",
    "linger.ms": 20,
    "batch.size": 2**18,
    "queue.buffering.max.messages": 50_000,
    "queue.buffering.max.kbytes": 2**16,
    "message.timeout.ms": 120_000,  # a broker may restart meanwhile
    "partitioner": "murmur2_random",  # a key goes to the partition where Java clients would put it
    "log_level": 2,
}


@dataclass
class Counts:
    """Messages handed to Kafka and acknowledged by it, by topic and injected kind. `errors`: reasons, how often each."""

    sent: Counter[Part] = field(default_factory=Counter)
    acknowledged: Counter[Part] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    is_complete: bool = False  # the plan was sent to its end

    @property
    def is_delivered(self) -> bool:
        """Whether everything was sent and acknowledged."""
        return self.is_complete and self.sent == self.acknowledged


def publish(
    broker: Broker,
    plan: Iterable[Message],
    rate: float = 0,
    on_progress: Callable[[int], object] = lambda messages: None,
    counts: Counts | None = None,
) -> Counts:
    """Send the planned messages in order, at most `rate` a second (0: as fast as the broker takes).

    Late rows wait until every other message is acknowledged. It stops where a message was not acknowledged in time; the
    counts tell. Pass `counts` to have them also when the sending is interrupted. `on_progress` gets numbers of messages
    sent since its last call.
    """
    sender = _Sender(broker, counts or Counts())
    return sender.send_all(plan, rate, on_progress)


class _Sender:
    def __init__(self, broker: Broker, counts: Counts) -> None:
        self._counts = counts
        self._producer = Producer(_CONFIG | client_config(broker), logger=log)
        self._callbacks: dict[Part, Callable[[KafkaError | None, Delivered], None]] = {}
        self._is_stopped = False

    def send_all(self, plan: Iterable[Message], rate: float, on_progress: Callable[[int], object]) -> Counts:
        pace = _Pace(rate)
        waiting_for_late, unreported = True, 0
        try:
            for message in plan:
                if waiting_for_late and message.injected == LATE:
                    waiting_for_late = False
                    self._await_acknowledgements()
                    if self._counts.errors:
                        return self._counts
                self._send(message)
                unreported += 1
                if rate or unreported >= _POLL_EVERY:
                    on_progress(unreported)
                    unreported = 0
                    self._wait_for(pace)
                if self._is_stopped:
                    return self._counts
            self._counts.is_complete = True
            return self._counts
        finally:
            on_progress(unreported)
            self._await_acknowledgements()

    def _wait_for(self, pace: "_Pace") -> None:
        pace.advance()
        self._producer.poll(0)
        if pace.seconds_to_wait() >= _LEAST_WAIT:
            while not self._is_stopped and (seconds := pace.seconds_to_wait()) > 0:
                self._producer.poll(seconds)

    def _send(self, message: Message) -> None:
        part = (message.topic, message.injected)
        headers: Headers | None = [(INJECTED_HEADER, message.injected.encode())] if message.injected else None
        callback = self._callbacks.get(part) or self._callbacks.setdefault(part, self._callback(part))
        while not self._is_stopped:
            try:
                self._producer.produce(message.topic, message.value, message.key, headers=headers, on_delivery=callback)
                self._counts.sent[part] += 1
                return
            except BufferError:
                self._producer.poll(0.1)  # the queue is full: wait for the broker
            except KafkaException as error:
                self._counts.sent[part] += 1
                self._failed(error.args[0])
                return

    def _callback(self, part: Part) -> Callable[[KafkaError | None, Delivered], None]:
        acknowledged = self._counts.acknowledged

        def delivered(error: KafkaError | None, _: Delivered) -> None:
            if error is None:
                acknowledged[part] += 1
            else:
                self._failed(error)

        return delivered

    def _failed(self, error: KafkaError) -> None:
        self._counts.errors[error.str()] += 1
        if error.code() == KafkaError._MSG_TIMED_OUT or error.fatal():
            self._is_stopped = True  # more would only wait for the same broker

    def _await_acknowledgements(self) -> None:
        while len(self._producer):
            self._producer.flush(0.5)
            if self._is_stopped:
                self._producer.purge()


class _Pace:
    """Spreads messages evenly over time; after a pause it catches up with at most one second's messages."""

    def __init__(self, rate: float) -> None:
        self._interval = 1 / rate if rate else 0.0
        self._due = time.monotonic()

    def advance(self) -> None:
        """One more message went out."""
        self._due = max(self._due, time.monotonic() - 1) + self._interval

    def seconds_to_wait(self) -> float:
        """Seconds until the next message is due; zero or less when it is."""
        return self._due - time.monotonic()
