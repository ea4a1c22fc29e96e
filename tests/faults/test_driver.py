"""Faults of the driver under load: it comes back by itself, and every record that was acknowledged is in bronze once."""

import random
import signal
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from include.stack import kafka
from spark_jobs.bronze import lag
from spark_jobs.kafka.topics import ensure_topics
from spark_jobs.runtime.settings import ROOT, Settings
from spark_jobs.service import heartbeat
from tests.support import fault_harness as harness
from tests.support.fault_harness import SEED, Sent, Watched
from tests.support.ledger import await_that

pytestmark = pytest.mark.faults

SOAK = pytest.mark.soak
RATE = 500  # records a second
PATIENCE = 300  # seconds, beside other tests; the figures are for a machine of one's own (make soak)


@pytest.fixture(scope="module")
def sent(settings: Settings) -> Iterator[Sent]:
    with harness.load(settings.broker().servers, SEED, RATE, ("transactions", "customers")) as ledger:
        yield ledger


@pytest.fixture(scope="module")
def watched(settings: Settings, sent: Sent) -> Iterator[Watched]:
    with harness.supervised(settings) as running:
        await_that(lambda: harness.versions(settings) > 1)
        yield running


def kills(watched: Watched, settings: Settings, count: int, seconds: float) -> list[float]:
    """Kill the driver so often, at random moments: its Python, its JVM or both; returns how long each recovery took.

    None may take longer than so many seconds.
    """
    chance, took = random.Random(SEED), []
    for _ in range(count):
        wait = chance.random() * 4
        harness.await_commits(settings)
        victims = chance.choice([[watched.driver], [watched.jvm], [watched.jvm, watched.driver]])
        harness.pause(wait)

        def kill(victims: list[Callable[[], psutil.Process]] = victims) -> None:
            for process in [victim() for victim in victims]:
                process.kill()

        took.append(harness.recovers(settings, kill, seconds))
    return took


def test_a_driver_that_is_killed_comes_back(settings: Settings, sent: Sent, watched: Watched) -> None:
    kills(watched, settings, 1, PATIENCE)
    harness.settle(settings, sent, 180, SEED)


@SOAK
def test_twenty_kills(settings: Settings, sent: Sent, watched: Watched) -> None:
    took = kills(watched, settings, 20, 75)
    print(f"seed {SEED}: recovered after", [round(seconds, 1) for seconds in took])
    assert statistics.median(took) <= 30, took
    harness.settle(settings, sent, 180, SEED)


@SOAK
@pytest.mark.parametrize("hung", ["driver", "jvm"])
def test_a_driver_that_hangs_is_replaced(settings: Settings, sent: Sent, watched: Watched, hung: str) -> None:
    victim = watched.driver() if hung == "driver" else watched.jvm()
    print(f"{hung} stopped: replaced after {harness.recovers(settings, victim.suspend, 60):.1f} s")
    assert not victim.is_running()
    assert any("hangs: no heartbeat" in line for line in watched.lines)
    harness.settle(settings, sent, 180, SEED)


def test_a_second_driver_is_refused(settings: Settings, watched: Watched) -> None:
    done = job("bronze")
    beat = watched.beat().facts
    assert (done.returncode, done.stderr.count("\n")) == (5, 1)
    assert f"bronze (process {beat['process']['pid']} on {beat['host']}, since 20" in done.stderr


def test_it_stops_behind_its_batch_and_starts_again_when_asked(settings: Settings, sent: Sent, watched: Watched) -> None:
    epoch = watched.beat().facts["epoch"]
    stopped = job("ingestion stop --who ann --why upgrade")
    assert stopped.returncode == 0, stopped.stderr
    assert "ingestion is stopped (1 applications ended)" in stopped.stderr
    assert (watched.beat().state, watched.beat().facts["exit_code"]) == (heartbeat.ENDED, 0)
    for topic in harness.TOPICS:  # no batch was cut short: what was planned is committed
        folder = next((settings.checkpoints / "bronze" / topic).glob("*/offsets")).parent
        planned, committed = ({int(file.name) for file in (folder / log).glob("[0-9]*")} for log in ("offsets", "commits"))
        assert max(planned) - max(committed) <= 1
    await_that(lambda: any("is stopped: requested by ann" in line for line in watched.lines))
    restarted = job("ingestion restart --who ann --wait 60")
    assert restarted.returncode == 0, restarted.stderr
    await_that(lambda: watched.beat().is_alive())
    assert watched.beat().facts["epoch"] > epoch
    harness.settle(settings, sent, 180, SEED)


@SOAK
def test_one_topic_that_fails_stops_no_other_and_continues_once_it_is_accepted(settings: Settings, sent: Sent, watched: Watched) -> None:
    """The topic accounts, to which nobody sends, is deleted, and then made anew."""

    def said() -> str:
        return str(watched.beat().facts["topics"]["accounts"].get("error"))

    admin = AdminClient({"bootstrap.servers": settings.broker().servers, "log_level": 0})
    admin.delete_topics(["accounts"])["accounts"].result(15)
    await_that(lambda: "topic accounts: found none at" in said())
    failures = watched.beat().facts["topics"]["accounts"]["failures"]
    await_that(lambda: watched.beat().facts["topics"]["accounts"]["failures"] > failures)
    harness.await_commits(settings, 2)
    assert any("accounts fails: topic accounts: found none at" in line for line in watched.lines)
    ensure_topics(settings.broker())
    await_that(lambda: "it was deleted and created again" in said())
    accepted = job("accept --topic accounts --who ann --why rebuilt")
    assert accepted.returncode == 0, accepted.stderr
    producer = Producer({"bootstrap.servers": settings.broker().servers})
    producer.produce("accounts", key=b"A", value=b"of the new one")
    assert producer.flush(15) == 0
    await_that(lambda: (("accounts#2", 0, 0), b"A") in harness.held(settings))
    await_that(lambda: said() == "None")
    harness.settle(settings, sent, 180, SEED)


def test_lag_tools_see_in_kafka_how_far_bronze_has_come(settings: Settings, sent: Sent, watched: Watched) -> None:
    group = Consumer({"bootstrap.servers": settings.broker().servers, "group.id": lag.GROUP, "log_level": 0})
    before = sum(place.offset for place in group.committed([TopicPartition("transactions", number) for number in range(5)], 15))
    assert before > 0

    def has_advanced() -> bool:
        places = group.committed([TopicPartition("transactions", number) for number in range(5)], 15)
        return sum(place.offset for place in places) > before

    await_that(has_advanced)
    group.close()


def test_what_is_left_of_a_driver_cannot_write_any_more(settings: Settings, sent: Sent, watched: Watched) -> None:
    """Its JVM is stopped, perhaps within a commit; the driver dies, another one takes over, and the old JVM wakes up."""
    jvm = watched.jvm()
    jvm.suspend()
    harness.recovers(settings, watched.driver().kill, PATIENCE)
    if jvm.is_running():
        jvm.send_signal(signal.SIGCONT)
    assert not psutil.pid_exists(jvm.pid) or jvm.status() == psutil.STATUS_ZOMBIE
    harness.settle(settings, sent, 180, SEED)


@SOAK
def test_the_broker_is_away_for_a_minute(settings: Settings, sent: Sent, watched: Watched) -> None:
    driver = watched.driver()
    broker = harness.broker(settings)
    broker.kill()
    harness.pause(60)
    if started := kafka.launch(settings.home):
        kafka.wait(settings.home, started)
    count = len(sent.acknowledged)
    await_that(lambda: len(sent.acknowledged) > count + RATE)
    harness.settle(settings, sent, 120, SEED)
    assert watched.driver() == driver


def job(command: str) -> subprocess.CompletedProcess[str]:
    """A job of this home, to its end."""
    return subprocess.run(
        [sys.executable, "-m", "spark_jobs.run", *command.split()], cwd=ROOT, capture_output=True, text=True, timeout=180, check=False
    )
