"""transactions.debits and transactions.credits hold each live transaction once for a `read_committed` reader, whatever is killed."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from include.stack import kafka
from include.stack.shutdown import stop_parts
from spark_jobs.kafka.topics import CREDITS, DEBITS, PUBLISHED
from spark_jobs.lake.tables import LIVE_TRANSACTIONS, ensure_tables
from spark_jobs.live import outbox
from spark_jobs.live.outbox import Outbox, Token
from spark_jobs.live.publishing import Publishing
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.job_process import job_environment
from spark_jobs.runtime.settings import ROOT, Settings, read_settings
from spark_jobs.service import run_loop
from tests.support.committed import committed_messages
from tests.support.ledger import await_that
from tests.support.live_rows import fill

pytestmark = pytest.mark.integration

BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
Message = dict[str, Any]


@pytest.fixture
def settings(tmp_path: Path, bootstrap: str) -> Settings:
    found = read_settings({"LEDGER_HOME": str(tmp_path / "home"), "LEDGER_KAFKA_BOOTSTRAP": bootstrap})
    ensure_tables(found, [LIVE_TRANSACTIONS])
    return found


def read(bootstrap: str, begin: str) -> dict[tuple[str, int], list[Message]]:
    """Every committed message of both topics whose key begins so, by topic and partition, in order."""
    found = dict[tuple[str, int], list[Message]]()
    for message in committed_messages(bootstrap, DEBITS.name, CREDITS.name):
        fields = json.loads(message.value() or b"", parse_float=Decimal)
        assert (message.key() or b"").decode() == fields["transactionId"]
        if fields["transactionId"].startswith(begin):
            place = (str(message.topic()), int(message.partition() or 0))
            found.setdefault(place, []).append(fields | {"source": dict(message.headers() or [])["source"]})
    return found


def assert_once(bootstrap: str, ids: list[str]) -> None:
    """Every row is there once, in its topic, and in order of arrival within a partition."""
    found = read(bootstrap, ids[0].partition(":")[0])
    assert Counter(each["transactionId"] for rows in found.values() for each in rows) == Counter(ids)
    for (topic, _), rows in found.items():
        assert {each["type"] for each in rows} == {"Debit" if topic == DEBITS.name else "Credit"}
        assert [each["transactionId"] for each in rows] == sorted(each["transactionId"] for each in rows)


def publishing(settings: Settings, upto: int) -> "subprocess.Popen[str]":
    environment = os.environ | job_environment()
    environment |= {"LEDGER_HOME": str(settings.home), "LEDGER_KAFKA_BOOTSTRAP": settings.broker().servers}
    command = [sys.executable, "-m", "tests.support.outbox_process", str(upto)]
    return subprocess.Popen(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def publish_over_kills(settings: Settings, upto: int, kills: int, between: Callable[[int], None]) -> None:
    """Kill the publisher so many times at random moments after it has begun, and let the last one finish."""
    chance = random.Random(7)
    for kill in range(kills):
        process, before = publishing(settings, upto), committed(settings)
        await_that(lambda before=before, process=process: committed(settings) > before or process.poll() is not None, 60)  # type: ignore[misc]
        time.sleep(chance.random() * 0.1)
        process.send_signal(signal.SIGKILL)
        process.wait()
        between(kill)
    process = publishing(settings, upto)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors


def committed(settings: Settings) -> int:
    """The end of the topic of tokens, where each transaction leaves one, and a mark."""
    consumer = Consumer({"bootstrap.servers": settings.broker().servers, "group.id": "watch", "log_level": 0})
    try:
        if PUBLISHED.name not in consumer.list_topics(timeout=15).topics:
            return 0
        return int(consumer.get_watermark_offsets(TopicPartition(PUBLISHED.name, 0), 15)[1])
    finally:
        consumer.close()


def test_rows_go_to_the_topic_of_their_type_as_the_source_topic_has_them(settings: Settings, bootstrap: str) -> None:
    ids = fill(settings, {3: 40, 9: 1})
    assert Outbox(settings).publish(9) == 41
    assert_once(bootstrap, ids)
    (first,) = [each for rows in read(bootstrap, ids[1]).values() for each in rows]
    assert first | {"type": ""} == {
        "transactionId": ids[1],
        "accountId": 'A"1',
        "customerId": "C",
        "eventTime": 1704067200001,
        "eventTimeFormatted": "2024-01-01 00:00:00.001",
        "type": "",
        "operation": None,
        "amount": Decimal("12345678901234.10"),
        "balance": Decimal("-0.05"),
        "source": b"transactions/0/1",
    }


def test_what_was_published_is_not_published_again(settings: Settings, bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "ROWS_AT_ONCE", 10)
    ids = fill(settings, {1: 25, 2: 3, 3: 3, 4: 30})
    first = Outbox(settings)
    assert (first.publish(2), first.publish(2), first.token) == (28, 0, Token(2, 3))
    second = Outbox(settings)
    assert (second.token, second.publish(4), second.publish(4)) == (Token(2, 3), 33, 0)
    assert Outbox(settings).publish(9) == 0
    assert_once(bootstrap, ids)


def test_a_second_publisher_fences_the_first(settings: Settings, bootstrap: str) -> None:
    ids = fill(settings, {1: 10, 2: 10})
    first = Outbox(settings)
    first.publish(1)
    second = Outbox(settings)
    with pytest.raises(LedgerError, match=r"another process publishes to transactions\.debits and transactions\.credits now"):
        first.publish(2)
    second.publish(2)
    assert_once(bootstrap, ids)


def test_a_new_table_begins_anew(settings: Settings, tmp_path: Path, bootstrap: str) -> None:
    fill(settings, {1: 4})
    Outbox(settings).publish(1)
    other = read_settings({"LEDGER_HOME": str(tmp_path / "other"), "LEDGER_KAFKA_BOOTSTRAP": bootstrap})
    ensure_tables(other, [LIVE_TRANSACTIONS])
    fill(other, {1: 4})
    assert Outbox(other).publish(1) == 4


def test_killed_publishers_lose_nothing_and_double_nothing(settings: Settings, bootstrap: str) -> None:
    ids = fill(settings, {1: 300, 2: 2, 3: 300})
    publish_over_kills(settings, 3, 6, lambda _: None)
    assert_once(bootstrap, ids)


@pytest.mark.soak
def test_fifty_kills_and_restarts_of_the_broker(settings: Settings, bootstrap: str, home_of_broker: Path) -> None:
    ids = fill(settings, dict.fromkeys(range(1, 21), 200))

    def restart(kill: int) -> None:
        if kill % 10 == 5:
            stop_parts(home_of_broker, None, lambda _: None)
            if started := kafka.launch(home_of_broker):
                kafka.wait(home_of_broker, started)

    publish_over_kills(settings, 20, 50, restart)
    assert_once(bootstrap, ids)


def test_the_loop_publishes_until_it_is_asked_to_stop(settings: Settings, bootstrap: str) -> None:
    ids = fill(settings, {1: 5})
    publishing = Publishing(settings, available_now=False)
    seen: list[int] = []

    def report(is_stopping: bool) -> None:
        status = publishing.status(time.monotonic())
        assert status["state"] != "failing", status
        if status["batch"] == 1 and not seen:
            seen.append(status["published_rows"])
            ids.extend(fill(settings, {2: 4}))

    deadline = time.monotonic() + 60
    assert not run_loop.run([publishing], report, lambda: publishing.status(0)["batch"] == 2 or time.monotonic() > deadline)
    assert seen == [5]
    assert_once(bootstrap, ids)


def test_without_a_broker_the_loop_fails_in_words(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_jobs.kafka.topics.ANSWER_SECONDS", 1)
    publishing = Publishing(replace(settings, kafka_bootstrap="127.0.0.1:1"), available_now=True)
    assert run_loop.run([publishing], lambda _: None, lambda: False)
    assert str(publishing.error).startswith("Kafka at 127.0.0.1:1 does not answer")
