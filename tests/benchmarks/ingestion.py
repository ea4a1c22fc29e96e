"""Ingestion: how long after Kafka appended a record it is visible in bronze, and how a spike of arrivals is survived.

A broker and an application of their own, in processes as in service; the producer is the Python one of librdkafka, beside them on the
same machine. A record's latency is the time of the commit file that shows it minus the time that the broker stamped on it.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from confluent_kafka import Producer
from deltalake import DeltaTable

from include.producer import generated_sources, plan_messages
from include.stack.processes import mark
from spark_jobs import control
from spark_jobs.lake import tables
from spark_jobs.runtime.settings import ROOT, Settings, read_settings
from spark_jobs.service import heartbeat
from spark_jobs.service.services import INGESTION
from tests.support.brokers import running_broker

MESSAGES = 50_000  # different ones, sent again and again


def measure_latency(rate: int, seconds: int) -> None:
    """Print p50, p99 and the largest latency at so many records a second, and the sizes of bronze's files."""
    with application() as settings:
        send(settings, rate, 20)  # the JVM has compiled what it needs
        begun = time.time()
        sent = send(settings, rate, seconds)
        await_all(settings)
        found = latencies(settings, begun)
        files = pa.table(DeltaTable(str(tables.BRONZE_TRANSACTIONS.path(settings))).get_add_actions())
        sizes = sorted(files.column("size_bytes").to_pylist())
    print(f"\nKafka append to visible in bronze, {sent / seconds:,.0f} records a second for {seconds} s, {os.cpu_count()} cores")
    print(f"{'records':>10} {'p50 s':>8} {'p99 s':>8} {'max s':>8} {'files':>8} {'median kB':>10}")
    p50, p99 = (found[int(len(found) * part)] for part in (0.5, 0.99))
    print(f"{len(found):10,} {p50:8.2f} {p99:8.2f} {found[-1]:8.2f} {len(sizes):8} {sizes[len(sizes) // 2] / 1000:10.0f}")


def measure_spike(rate: int, seconds: int = 120) -> None:
    """Print the course of a spike of ten times the rate for two minutes, until it is drained: lag, rates, limit, memory."""
    with application() as settings:
        send(settings, rate, 30)
        print(f"\n{rate:,} records a second, ten times as many for {seconds} s, {os.cpu_count()} cores, driver heap 1 GB")
        print(f"{'second':>7} {'come/s':>8} {'go/s':>8} {'lag':>10} {'lag s':>6} {'limit':>8} {'rss MB':>7}  state")
        ending, begun = threading.Event(), time.monotonic()

        def tell() -> None:
            while not ending.wait(10):
                beat = heartbeat.read_one(settings, INGESTION, "bronze")
                topic = beat.facts["topics"]["transactions"] if beat else {}
                memory = sum(process.memory_info().rss for process in beat.processes()) / 2**20 if beat else 0
                words = [topic.get(name, 0) for name in ("arrival_rate", "processing_rate", "lag_records", "lag_seconds", "limit")]
                come, go, lag, waited, limit = words
                state = topic.get("error") or topic.get("pace")
                print(
                    f"{time.monotonic() - begun:7.0f} {come:8,.0f} {go:8,.0f} {lag:10,} {waited:6.0f} {limit:8,} {memory:7.0f}  {state}",
                    flush=True,
                )

        teller = threading.Thread(target=tell)
        teller.start()
        sent = send(settings, 10 * rate, seconds)
        spike_ended = time.monotonic()
        print(f"spike over: {sent:,} records, {sent / seconds:,.0f} a second")
        send(settings, rate, 30)
        await_all(settings)
        ending.set()
        teller.join()
        print(f"drained {time.monotonic() - spike_ended:.0f} s after the spike; every record is in bronze once: {is_whole(settings)}")


@contextmanager
def application() -> Iterator[Settings]:
    """A home with a broker and a running bronze application."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        with running_broker(home) as bootstrap:
            environ = {"LEDGER_HOME": folder, "LEDGER_KAFKA_BOOTSTRAP": bootstrap}
            environment = {name: value for name, value in os.environ.items() if not name.startswith("LEDGER_")} | environ
            command = [sys.executable, "-m", "spark_jobs.run", "bronze"]
            with open(home / "bronze.log", "wb") as log:
                subprocess.Popen(command, cwd=ROOT, env={**environment, **mark(home, "bronze")}, stdout=log, stderr=log)
            settings = read_settings(environ)
            _await(lambda: (beat := heartbeat.read_one(settings, INGESTION, "bronze")) is not None and beat.state == heartbeat.RUNNING)
            yield settings


def send(settings: Settings, rate: int, seconds: int) -> int:
    """Send transactions at a rate for so long; returns how many were acknowledged."""
    values = _messages()
    producer = Producer(
        {
            "bootstrap.servers": settings.broker().servers,
            "linger.ms": 10,
            "compression.type": "lz4",
            "acks": "all",
            "log_level": 0,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    begun, count = time.monotonic(), 0
    while (now := time.monotonic() - begun) < seconds:
        for _ in range(min(5_000, int(now * rate) - count)):
            key, value = values[count % len(values)]
            producer.produce("transactions", key=key, value=value)
            count += 1
        producer.poll(0.005)
    producer.flush(60)
    return count


def latencies(settings: Settings, since: float) -> list[float]:
    """Of every record that the broker stamped since then, how long it took to be visible, sorted."""
    path = tables.BRONZE_TRANSACTIONS.path(settings)
    shown: dict[int, float] = {}
    for file in (path / "_delta_log").glob("*.json"):
        for line in file.read_text().splitlines():
            told = json.loads(line).get("commitInfo", {}).get("userMetadata")
            if told and (batch := json.loads(told).get("batch")):
                shown[batch] = file.stat().st_mtime
    rows = control.query(DeltaTable(str(path)), "select _batch, arrow_cast(_timestamp, 'Int64') as at from t").to_pydict()
    found = (shown[batch] - at / 1e6 for batch, at in zip(rows["_batch"], rows["at"], strict=True) if at / 1e6 >= since)
    return sorted(found)


def is_whole(settings: Settings) -> bool:
    """Whether bronze has every offset of Kafka's once."""
    sql = "select count(*) as rows, count(distinct _partition * 10000000000 + _offset) as places from t"
    row = control.query(DeltaTable(str(tables.BRONZE_TRANSACTIONS.path(settings))), sql).to_pylist()[0]
    return bool(row["rows"] == row["places"] == _held(settings))


def await_all(settings: Settings) -> None:
    """Return when nothing waits any more."""
    time.sleep(3)  # until the heartbeat speaks of the last records
    _await(lambda: _lag(settings) == 0, 900)


def _lag(settings: Settings) -> int | None:
    beat = heartbeat.read_one(settings, INGESTION, "bronze")
    return beat.facts["topics"]["transactions"].get("lag_records") if beat else None


def _held(settings: Settings) -> int:
    beat = heartbeat.read_one(settings, INGESTION, "bronze")
    return sum(beat.facts["topics"]["transactions"]["offsets"].values()) if beat else 0


def _messages() -> Sequence[tuple[bytes | None, bytes | None]]:
    plan = plan_messages(generated_sources(MESSAGES, seed=1))
    return [(message.key, message.value) for message in plan if message.topic == "transactions"]


def _await(condition: Callable[[], object], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:.0f} s")
        time.sleep(0.2)
