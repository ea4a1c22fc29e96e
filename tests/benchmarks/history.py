"""How a silver run over new rows depends on the history behind it: its time, and what it reads.

The histories are written straight into silver.transactions. The new rows are the same for all; one in a hundred has the id of a
row of the history, chosen at random. Runs on the histories take turns, so that other work on the machine hits all alike.
"""

import hashlib
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake
from pyspark.sql import Column, DataFrame, SparkSession, functions as F

from spark_jobs import control
from spark_jobs.lake import sinks, tables
from spark_jobs.lake.topics.transactions import TOPIC as TRANSACTIONS
from spark_jobs.lake.txn import Txn
from spark_jobs.runtime.session import start_session
from spark_jobs.runtime.settings import ROOT, Settings, read_settings
from spark_jobs.silver import id_index

PARTITIONS = 5
ONE_IN = 100
MOMENT = 1357028613000


@dataclass(frozen=True)
class Measured:
    """One run: its wall time, and what its processes used: processor time, bytes read (from the page cache or not), bytes written, and
    the most memory that they held together (pages that two of them share count twice).
    """

    seconds: float
    processor: float
    bytes_read: float
    bytes_written: float = 0.0
    memory: float = 0.0


def measure(folder: Path, histories: Sequence[int], new_rows: int, repeats: int) -> None:
    """Print, for each number of rows of history, the median of some runs, and how it compares with the first."""
    for history in histories:
        make_history(environment(folder / f"history-{history}"), history, new_rows)
    runs: dict[int, list[Measured]] = {history: [] for history in histories}
    for _ in range(repeats):
        for history in histories:
            runs[history].append(run_on_copy(folder / f"history-{history}", folder / "run"))
    print(f"\n{new_rows:,} new bronze rows, 1 % duplicates of random old ids; medians of {repeats} runs")
    print(
        f"{'rows of history':>16} {'seconds':>8} {'ratio':>6} {'cpu s':>6} {'ratio':>6} {'read MB':>8} {'index MB':>9} {'bytes a row':>12}"
    )
    base = median(runs[histories[0]])
    for history in histories:
        found = median(runs[history])
        index = size_of(read_settings(environment(folder / f"history-{history}")), tables.TRANSACTION_IDS)
        wall = f"{history:>16,} {found.seconds:8.1f} {found.seconds / base.seconds:6.2f}"
        processor = f"{found.processor:6.1f} {found.processor / base.processor:6.2f}"
        print(f"{wall} {processor} {found.bytes_read / 1e6:8.0f} {index / 1e6:9.1f} {index / history:12.1f}", flush=True)


def median(runs: Sequence[Measured]) -> Measured:
    """The median of each measure."""
    return Measured(*(statistics.median(values) for values in zip(*(astuple(run) for run in runs), strict=True)))


def environment(home: Path) -> dict[str, str]:
    """That of a run with a home of its own."""
    return {name: value for name, value in os.environ.items() if not name.startswith("LEDGER_")} | {"LEDGER_HOME": str(home)}


def make_history(settings_of: dict[str, str], count: int, new_rows: int) -> None:
    """Silver as batch 1 left it, with so many transactions, and batch 2 in bronze."""
    settings = read_settings(settings_of)
    tables.ensure_tables(settings, (*tables.BRONZE, *tables.SILVER, *tables.SILVER_INDEXES, *tables.CONTROL))
    spark = start_session(settings, "history")
    for name, value in id_index.SESSION.items():
        spark.conf.set(name, value)
    rows = sinks.in_order(history_rows(spark, count), tables.ARRIVAL, count)
    sinks.append_batches(rows, settings, tables.SILVER_TRANSACTIONS, Txn("silver", 1))
    id_index.catch_up(spark, settings, TRANSACTIONS, "silver", 1)
    spark.stop()
    done = {"job": "silver", "table": "silver.transactions", "first_batch": 1, "last_batch": 1}
    done |= {"_newest_event_at": datetime.fromtimestamp(MOMENT / 1000, UTC)}
    control.append(settings, tables.BATCHES, [done])
    add_bronze(settings, 1, [b"{}"], offset=0)
    add_bronze(settings, 2, new_values(count, new_rows), offset=count // PARTITIONS + 1)


def history_rows(spark: SparkSession, count: int) -> DataFrame:
    """Transactions whose ids are hashes of their numbers, spread over the partitions."""
    number = F.col("id")
    in_partition = 1 + count // PARTITIONS

    def some(salt: str, most: int) -> Column:
        return F.pmod(F.xxhash64(number, F.lit(salt)), F.lit(most))

    event_at = F.timestamp_millis(F.lit(MOMENT) + number)
    return spark.range(count).select(
        F.substring(F.md5(number.cast("string")), 1, 16).alias("transaction_id"),
        F.format_string("A%08d", some("account", 4500)).alias("account_id"),
        F.format_string("C%08d", some("customer", 5300)).alias("customer_id"),
        event_at.alias("event_at"),
        F.to_date(event_at).alias("event_on"),
        F.when(number % 2 == 0, "Credit").otherwise("Debit").alias("type"),
        F.when(number % 3 == 0, "Credit in Cash").otherwise("Withdrawal in Cash").alias("operation"),
        (some("amount", 10_000_000) / 100).cast("decimal(18,2)").alias("amount"),
        (some("balance", 10_000_000) / 100).cast("decimal(18,2)").alias("balance"),
        F.lit("transactions").alias("_topic"),
        (number / in_partition).cast("int").alias("_partition"),
        (number % in_partition).alias("_offset"),
        F.lit(1).cast("bigint").alias("_batch"),
    )


def new_values(history: int, count: int) -> list[bytes]:
    """New transactions as Kafka brings them."""
    chance = random.Random(7)
    values = []
    for place in range(count):
        number = chance.randrange(history) if place % ONE_IN == 0 else history + place
        fields = {
            "transactionId": hashlib.md5(str(number).encode(), usedforsecurity=False).hexdigest()[:16],
            "accountId": f"A{chance.randrange(4500):08}",
            "customerId": f"C{chance.randrange(5300):08}",
            "eventTime": MOMENT + number,
            "eventTimeFormatted": "2013-01-01 08:23:33.000",
            "type": chance.choice(("Credit", "Debit")),
            "operation": "Credit in Cash",
            "amount": chance.randrange(10_000_000) / 100,
            "balance": chance.randrange(10_000_000) / 100,
        }
        values.append(json.dumps(fields).encode())
    return values


def add_bronze(settings: Settings, batch: int, values: list[bytes], offset: int) -> None:
    """A batch as ingestion commits it."""
    now = datetime.now(UTC)
    common = {"_topic": "transactions", "_timestamp": now, "_batch": batch, "_ingested_at": now, "_ingested_on": now.date()}
    rows = [
        common | {"key": b"", "value": value, "_partition": place % PARTITIONS, "_offset": offset + place // PARTITIONS}
        for place, value in enumerate(values)
    ]
    arrow = pa.Table.from_pylist(rows, schema=pa.schema(tables.BRONZE_TRANSACTIONS.delta_schema().to_arrow()))
    properties = CommitProperties(custom_metadata={"userMetadata": json.dumps({"batch": batch})})
    write_deltalake(str(tables.BRONZE_TRANSACTIONS.path(settings)), arrow, mode="append", commit_properties=properties)


def run_on_copy(home: Path, copy: Path) -> Measured:
    """Run silver on a copy of a home."""
    link_copy(home, copy)
    measured = run_job("silver", copy)
    shutil.rmtree(copy)
    return measured


def link_copy(home: Path, copy: Path) -> None:
    """Copy a home; its data files are linked, because nobody changes them."""
    shutil.copytree(
        home, copy, copy_function=lambda source, target: (os.link if source.endswith(".parquet") else shutil.copy2)(source, target)
    )


def run_job(job: str, home: Path) -> Measured:
    """Run a job in a process of its own."""
    return run_module(["spark_jobs.run", job], home)


def run_module(words: Sequence[str], home: Path) -> Measured:
    """Run a module with arguments in a process of its own."""
    return run_command([sys.executable, "-m", *words], home)


def run_command(command: Sequence[str], home: Path) -> Measured:
    """Run a command in a process of its own, until all that it started has ended, too. Raises SystemExit with what it wrote when it fails.

    `seconds` are those of the command itself: a JVM removes its files a moment after the Python that drove it.
    """
    begun, used, memory = time.monotonic(), dict[psutil.Process, tuple[float, int, int]](), 0
    with (
        tempfile.TemporaryFile("w+") as output,
        subprocess.Popen(command, env=environment(home), cwd=ROOT, stdout=output, stderr=subprocess.STDOUT) as process,
    ):
        watched = psutil.Process(process.pid)
        while process.poll() is None:
            memory = max(memory, note_use(watched, used))
            time.sleep(0.1)
        seconds = time.monotonic() - begun
        psutil.wait_procs(used, timeout=60)
        if process.returncode != 0:
            output.seek(0)
            raise SystemExit(output.read() or f"{command} failed")
    processor, read, written = zip(*used.values(), strict=True)
    return Measured(seconds, sum(processor), sum(read), sum(written), memory)


def note_use(process: psutil.Process, used: dict[psutil.Process, tuple[float, int, int]]) -> int:
    """The processor seconds and the bytes read and written of a process and its children so far; returns the memory they hold now."""
    memory = 0
    try:
        for each in (process, *process.children(recursive=True)):
            times, moved = each.cpu_times(), each.io_counters()
            used[each] = (times.user + times.system, moved.read_chars, moved.write_chars)
            memory += each.memory_info().rss
    except psutil.Error:
        pass  # one of them is gone: what it had used stays noted
    return memory


def use_of(process: psutil.Process) -> tuple[float, int]:
    """The processor seconds and the bytes read of a process and its children so far."""
    used = dict[psutil.Process, tuple[float, int, int]]()
    note_use(process, used)
    return sum(each[0] for each in used.values()), sum(each[1] for each in used.values())


def exponent(values: Sequence[float], costs: Sequence[float]) -> float:
    """The power of the values by which costs grow (least squares of the logarithms): 0 where they do not, or where there is one value."""
    if len(set(values)) < 2:
        return 0.0
    slope, _ = np.polyfit(np.log(values), np.log(costs), 1)
    return float(slope)


def size_of(settings: Settings, table: tables.Table) -> int:
    """The bytes of a table's present files."""
    files = pa.table(DeltaTable(str(table.path(settings))).get_add_actions())
    return int(sum(files.column("size_bytes").to_pylist()))
