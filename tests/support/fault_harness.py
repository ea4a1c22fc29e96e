"""What fault tests share: a seeded load with a ledger of what the broker acknowledged, faults at seeded times, and one comparison.

A failure says with which seed to run it again.
"""

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from confluent_kafka import Message, Producer
from deltalake import DeltaTable

from include.stack import kafka
from include.stack.processes import find_all
from spark_jobs import control
from spark_jobs.lake import tables
from spark_jobs.runtime.settings import Settings
from spark_jobs.service import heartbeat
from spark_jobs.service.heartbeat import Heartbeat
from spark_jobs.service.services import INGESTION
from spark_jobs.service.supervisor import Supervisor
from tests.support.ledger import await_that

SEED = int(os.environ.get("LEDGER_TEST_SEED", "1"))
TOPICS = ("transactions", "customers", "accounts")
Place = tuple[str, int, int]  # topic, partition, offset


@dataclass
class Sent:
    """The ledger: every record that the broker acknowledged, with its key, and how many were not."""

    acknowledged: dict[Place, bytes] = field(default_factory=dict)
    refused: int = 0

    def note(self, error: object, message: Message) -> None:
        """The producer's delivery report."""
        if error is not None:
            self.refused += 1
        else:
            self.acknowledged[(message.topic() or "", message.partition() or 0, message.offset() or 0)] = message.key() or b""


@contextmanager
def load(bootstrap: str, seed: int, a_second: int, topics: Sequence[str] = TOPICS) -> Iterator[Sent]:
    """Records of random sizes, nearly all to the first of these topics, at this rate, until the block ends (an hour at most)."""
    sent, ending, chance = Sent(), threading.Event(), random.Random(seed)

    def produce() -> None:
        producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 20, "log_level": 0})
        begin, count = time.monotonic(), 0
        while not ending.is_set() and time.monotonic() < begin + 3600:
            while count < (time.monotonic() - begin) * a_second:
                topic = chance.choices(topics, (18, 1, 1)[: len(topics)])[0]
                key = b"%d-%d" % (seed, count)
                producer.produce(topic, key=key, value=chance.randbytes(chance.randrange(400)), on_delivery=sent.note)
                producer.poll(0)
                count += 1
            producer.poll(0.02)
        producer.flush(120)

    with _beside(produce, ending):
        yield sent


@dataclass
class Watched:
    """An ingestion that is supervised as the triggerer does it, once a second."""

    settings: Settings
    name: str
    lines: list[str] = field(default_factory=list)

    def exists(self) -> bool:
        """Whether it has started."""
        return heartbeat.read_one(self.settings, INGESTION, self.name) is not None

    def beat(self) -> Heartbeat:
        """The last heartbeat."""
        beat = heartbeat.read_one(self.settings, INGESTION, self.name)
        assert beat is not None
        return beat

    def driver(self) -> psutil.Process:
        return psutil.Process(self.beat().facts["process"]["pid"])

    def jvm(self) -> psutil.Process:
        return psutil.Process(self.beat().facts["jvm"]["pid"])


@contextmanager
def supervised(settings: Settings, topics: Sequence[str] = TOPICS) -> Iterator[Watched]:
    """Supervise until the block ends; then the application is stopped gracefully."""
    supervisor = Supervisor(settings, INGESTION, topics, "fault test")
    watched, ending = Watched(settings, supervisor.name), threading.Event()

    def look() -> None:
        while not ending.wait(1.0):
            watched.lines.extend(f"{time.strftime('%H:%M:%S')} {line}" for line in supervisor.step())

    try:
        with _beside(look, ending):
            yield watched
    finally:
        supervisor.stop()


@contextmanager
def _beside(work: Callable[[], None], ending: threading.Event) -> Iterator[None]:
    """Do some work in a thread beside the block, which sets the event and waits for its end."""
    thread = threading.Thread(target=work, name=work.__name__)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()


def versions(settings: Settings) -> int:
    """How many commits the table of transactions has."""
    path = str(tables.BRONZE_TRANSACTIONS.path(settings))
    return DeltaTable(path).version() if DeltaTable.is_deltatable(path) else -1


def held(settings: Settings) -> Counter[tuple[Place, bytes]]:
    """Every row of bronze, by where it lay in Kafka, and its key."""
    found: Counter[tuple[Place, bytes]] = Counter()
    for table in tables.BRONZE:
        if DeltaTable.is_deltatable(str(table.path(settings))):
            rows = control.query(DeltaTable(str(table.path(settings))), 'select _topic, _partition, _offset, "key" from t')
            found.update(((row["_topic"], row["_partition"], row["_offset"]), bytes(row["key"] or b"")) for row in rows.to_pylist())
    return found


def differences(settings: Settings, sent: Sent) -> list[str]:
    """Where bronze is not the ledger: records that are missing, twice, or were never acknowledged. What counts is that it is empty.

    A record whose acknowledgement was lost may be there all the same: with `refused` records nothing is said of those that are more.
    """
    found = held(settings)
    lost = [place for place, key in sent.acknowledged.items() if (place, key) not in found]
    twice = [place for (place, _), count in found.items() if count > 1]
    more = [place for place, _ in found if place not in sent.acknowledged] if not sent.refused else []
    kinds = {"lost": lost, "twice": twice, "never acknowledged": more}
    return [f"{len(places)} {kind}, the first {places[0]}" for kind, places in kinds.items() if places]


def await_commits(settings: Settings, count: int = 1, seconds: float = 300) -> None:
    """Return when transactions has so many commits more; under load there is one every two seconds."""
    version = versions(settings)
    await_that(lambda: versions(settings) >= version + count, seconds)


def recovers(settings: Settings, fault: Callable[[], object], seconds: float) -> float:
    """Do it, and return after how many seconds another application had committed a batch of transactions."""
    before = heartbeat.read_one(settings, INGESTION, "bronze")
    assert before is not None
    fault()
    begun = time.monotonic()
    while True:
        beat = heartbeat.read_one(settings, INGESTION, "bronze")  # its own batch counts: a JVM that is dying may still commit one
        if beat and beat.facts["process"] != before.facts["process"] and beat.facts["topics"]["transactions"].get("batch"):
            return time.monotonic() - begun
        assert time.monotonic() - begun < seconds, f"not within {seconds:.0f} s; LEDGER_TEST_SEED={SEED} runs it again\n{output(settings)}"
        pause(0.1)


def settle(settings: Settings, sent: Sent, seconds: float, seed: int) -> None:
    """Return when bronze holds everything that was acknowledged by now, nothing twice; fails with what it lacks, and the seed."""
    deadline, until = time.monotonic() + seconds, Sent(dict(sent.acknowledged), refused=1)  # more is acknowledged meanwhile
    while found := differences(settings, until):
        assert time.monotonic() < deadline, f"{found}; LEDGER_TEST_SEED={seed} runs it again\n{output(settings)}"
        pause(1)


def pause(seconds: float) -> None:
    """Let time pass: part of a schedule of faults, never a way to wait for something."""
    threading.Event().wait(seconds)


def broker(settings: Settings) -> psutil.Process:
    """The JVM of the embedded broker."""
    found = [process for process in find_all(settings.home, [kafka.PART]) if process.name() == "java"]
    assert len(found) == 1
    return found[0]


def output(settings: Settings) -> str:
    """What the application wrote, for a failed test to show."""
    file = Path(INGESTION.folder(settings) / "bronze.log")
    return file.read_text()[-3000:] if file.exists() else ""
