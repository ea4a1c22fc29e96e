"""What a cycle of silver, gold and the gates does in a warm session, behind a history: from Spark's event log and the tables' logs.

    python -m tests.benchmarks.cycle [--history N] [--new 10000,50] [--cycles N] [--customers N] [--late recent|any]
        [--folder DIR] [--json FILE]

A cycle is a bronze batch of each topic: so many new transactions (one in a hundred late by up to 8 days, or of any time of the history,
one in a hundred a duplicate), 20 changed customers and 20 changed accounts. The first cycles of each size warm the session and are not
counted. Data and seeds are fixed. The history is that of gold_history.py, 10,000 rows a day; `--folder` keeps it for the next time.
"""

import argparse
import hashlib
import json
import os
import platform
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from spark_jobs import control
from spark_jobs.control import rule_sets, scope
from spark_jobs.gold import job as gold
from spark_jobs.lake import sinks, tables
from spark_jobs.lake.layout import SMALL_PAGES
from spark_jobs.lake.topics import transactions
from spark_jobs.releases import gates
from spark_jobs.runtime.session import engine_conf, start_session
from spark_jobs.runtime.settings import Settings, read_settings
from spark_jobs.silver import id_index, job as silver
from tests.benchmarks import event_log, gold_history
from tests.benchmarks.event_log import Part
from tests.benchmarks.gold_history import DAY_MS, END, ONE_IN, RECENT_DAYS, ROWS_A_BATCH, ROWS_A_DAY
from tests.benchmarks.history import PARTITIONS, environment, link_copy, use_of
from tests.support.publishing import pass_gates

CHANGED = 20
WARM_UP = 2
_FOR_HISTORY = engine_conf() | {"spark.driver.memory": "2g"}
_WRITTEN = (*tables.SILVER_OWNED, *tables.GOLD, tables.BATCHES)
Message = tuple[str, dict[str, Any]]


@dataclass(frozen=True)
class Bank:
    """What a cycle meets: rows of history, customers (and fewer accounts), and by how many days a late row is late at most."""

    history: int
    customers: int
    late_days: int

    @property
    def accounts(self) -> int:
        """How many there are."""
        return self.customers * 45 // 53


@dataclass(frozen=True)
class Phase:
    """One run of silver or gold: wall time, what the JVM and this process used, commits by table, and what Spark did.

    `memory`: the most that both held so far, in bytes; `read`: bytes, from the page cache or not.
    """

    seconds: float
    processor: float
    read: int
    memory: int
    commits: dict[str, int]
    parts: dict[str, Part]


def main() -> None:
    """Make the history, run the cycles, print the table and write the JSON."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.cycle")
    parser.add_argument("--history", type=int, default=1_000_000)
    parser.add_argument("--new", default="10000,50", help="new rows of a cycle; several sizes, with commas between them")
    parser.add_argument("--cycles", type=int, default=5)
    parser.add_argument("--customers", type=int, default=5300)
    parser.add_argument("--late", choices=("recent", "any"), default="recent", help="how late late rows are: days, or any time")
    parser.add_argument("--folder", type=Path, help="where the history stays")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--only-history", action="store_true", help="make the history in --folder, and stop")
    options = parser.parse_args()
    sizes = [int(size) for size in options.new.split(",")]
    bank = Bank(options.history, options.customers, RECENT_DAYS if options.late == "recent" else options.history // ROWS_A_DAY)
    with tempfile.TemporaryDirectory() as temporary:
        home = (options.folder or Path(temporary)) / f"cycle-{bank.history}-{bank.customers}"
        make_history(home, bank)
        if not options.only_history:
            report(measure(home, Path(temporary) / "run", bank, sizes, options.cycles), options)


def make_history(home: Path, bank: Bank) -> None:
    """Bronze, silver and gold of a history, as runs of the jobs would have left them; nothing, where it was made before."""
    if (home / "done").exists():
        return
    shutil.rmtree(home, ignore_errors=True)
    settings = read_settings(environment(home))
    tables.ensure_tables(settings, (*tables.BRONZE, *tables.SILVER, *tables.SILVER_INDEXES, *tables.GOLD, *tables.CONTROL))
    spark = start_session(settings, "history", _FOR_HISTORY)
    arrive(settings, "customers", 1, [customer(number, "Ely", 0) for number in range(bank.customers)])
    arrive(settings, "accounts", 1, [account(number, number % 77, 0) for number in range(bank.accounts)])
    run_silver(spark, settings, "history")
    count, last = bank.history, 1 + (bank.history - 1) // ROWS_A_BATCH
    with sinks.configured(spark, id_index.SESSION):
        rows = gold_history.transactions(
            spark, count, gold_history.late_one_in(ONE_IN, "late", most=2 * DAY_MS), keys=(bank.customers, bank.accounts)
        )
        ordered = rows.repartitionByRange(1 + count // (2 * gold_history.ROWS_A_FILE), *tables.ARRIVAL)
        gold_history.append(settings, tables.SILVER_TRANSACTIONS, ordered.sortWithinPartitions(*tables.ARRIVAL), "silver")
        id_index.catch_up(spark, settings, transactions.TOPIC, "silver", last)
    with sinks.configured(spark, SMALL_PAGES):
        gold_history.make_gold(spark, settings, count)
    spark.stop()
    gold_history.stop_jvm()
    common = {"first_batch": 1, "last_batch": last, "output": count, "finished_at": END, "_newest_event_at": END}
    done = [common | {"job": "silver", "table": "silver.transactions"}]
    control.append(settings, tables.BATCHES, done + [common | {"job": "gold", "table": table.name} for table in tables.GOLD])
    pass_gates(settings, last)
    (home / "done").touch()


def measure(home: Path, copy: Path, bank: Bank, sizes: Iterable[int], cycles: int) -> dict[str, list[Phase]]:
    """The counted cycles of each size, on a copy of the history; the key is `silver 10,000`."""
    link_copy(home, copy)
    settings, log = read_settings(environment(copy)), copy / "events"
    log.mkdir()
    spark = start_session(settings, "cycle", event_log.conf(log) | engine_conf())
    batch, number, found = 1 + bank.history // ROWS_A_BATCH, bank.history, dict[str, list[Phase]]()
    for size in sizes:
        for cycle in range(WARM_UP + cycles):
            batch += 1
            arrive_batch(settings, bank, batch, number, size)
            number += size
            phases = {
                "silver": run_phase(settings, log, partial(run_silver, spark, settings, f"silver-{batch}")),
                "gold": run_phase(settings, log, partial(gold.run, spark, settings, f"gold-{batch}")),
                "gates": run_phase(settings, log, partial(run_gates, settings, f"gates-{batch}")),
            }
            for name, phase in phases.items():
                print(f"{name} {size:,} new rows, cycle {cycle + 1}: {phase.seconds:.1f} s", flush=True)
                if cycle >= WARM_UP:
                    found.setdefault(f"{name} {size:,}", []).append(phase)
    spark.stop()
    return found


def run_phase(settings: Settings, log: Path, run: Callable[[], object]) -> Phase:
    """Run a job, and find what it did."""
    before, used, begun = versions(settings), use_of(psutil.Process()), time.time()
    run()
    ended = time.time()
    processor, read = (now - then for now, then in zip(use_of(psutil.Process()), used, strict=True))
    after = versions(settings)
    commits = {name: after[name] - before[name] for name in after if after[name] > before[name]}
    time.sleep(1)  # the event log is written by another thread
    return Phase(ended - begun, processor, int(read), most_memory(), commits, event_log.parts(log, (begun, ended)))


def run_silver(spark: SparkSession, settings: Settings, run_id: str) -> None:
    """What `run silver` does."""
    rule_sets.register(settings, {table.topic: table for table in tables.BRONZE})
    silver.run(spark, settings, run_id, scope.unread_bronze(settings))


def run_gates(settings: Settings, run_id: str) -> None:
    """What `run gate` does for each layer. Raises GateClosed."""
    for layer in tables.LAYERS:
        gates.run(settings, layer, run_id)


def versions(settings: Settings) -> dict[str, int]:
    """The version of every table that the jobs write."""
    return {table.name: DeltaTable(str(table.path(settings))).version() for table in _WRITTEN}


def most_memory() -> int:
    """The most bytes of memory that this process held so far, and the most of its JVM."""
    files = [Path(f"/proc/{process.pid}/status") for process in (psutil.Process(), *psutil.Process().children())]
    return sum(1024 * int(line.split()[1]) for file in files for line in file.read_text().splitlines() if line.startswith("VmHWM"))


def arrive_batch(settings: Settings, bank: Bank, batch: int, first: int, size: int) -> None:
    """A bronze batch of each topic; `first`: how many transactions came before it."""
    chance, behind = random.Random(batch), first - bank.history
    arrive(settings, "transactions", batch, [transaction(chance, bank, first, place) for place in range(size)])
    now = 1000 * int(END.timestamp()) + behind * DAY_MS // ROWS_A_DAY
    changed = [customer(number, f"city {batch}", now) for number in chance.sample(range(bank.customers), CHANGED)]
    arrive(settings, "customers", batch, changed)
    arrive(settings, "accounts", batch, [account(number, batch % 77, now) for number in chance.sample(range(bank.accounts), CHANGED)])


def transaction(chance: random.Random, bank: Bank, first: int, place: int) -> Message:
    """A new transaction, or one whose id came in the history."""
    number, behind = chance.randrange(first) if place % ONE_IN == 0 else first + place, first - bank.history + place
    late = chance.randrange(bank.late_days * DAY_MS) if place % ONE_IN == 1 else 0
    id_ = hashlib.md5(str(number).encode(), usedforsecurity=False).hexdigest()[:16]
    return id_, {
        "transactionId": id_,
        "accountId": f"A{chance.randrange(bank.accounts):08}",
        "customerId": f"C{chance.randrange(bank.customers):08}",
        "eventTime": 1000 * int(END.timestamp()) + behind * DAY_MS // ROWS_A_DAY - late,
        "eventTimeFormatted": "2016-01-10 12:00:00.000",
        "type": chance.choice(("Credit", "Debit")),
        "operation": "Credit in Cash",
        "amount": chance.randrange(10_000_000) / 100,
        "balance": chance.randrange(10_000_000) / 100,
    }


def customer(number: int, city: str, updated: int) -> Message:
    """A version of a customer."""
    id_ = f"C{number:08}"
    return id_, {"customerId": id_, "fullName": "Ada Lovelace", "city": city, "state": "NM", "updateTime": updated or 1_300_000_000_000}


def account(number: int, district: int, updated: int) -> Message:
    """A version of an account."""
    id_ = f"A{number:08}"
    return id_, {"accountId": id_, "districtId": district, "updateTime": updated or 1_300_000_000_000}


def arrive(settings: Settings, topic: str, batch: int, messages: Iterable[Message]) -> None:
    """A batch as ingestion commits it."""
    table = next(table for table in tables.BRONZE if table.topic == topic)
    partitions, now = PARTITIONS if topic == "transactions" else 1, datetime(2026, 1, 1, tzinfo=UTC)
    common = {"_topic": topic, "_timestamp": now, "_batch": batch, "_ingested_at": now, "_ingested_on": now.date()}
    rows = [
        common
        | {"key": key.encode(), "value": json.dumps(fields).encode(), "_partition": place % partitions}
        | {"_offset": batch * 1_000_000 + place // partitions}
        for place, (key, fields) in enumerate(messages)
    ]
    arrow = pa.Table.from_pylist(rows, schema=pa.schema(table.delta_schema().to_arrow()))
    properties = CommitProperties(custom_metadata={"userMetadata": json.dumps({"batch": batch})})
    write_deltalake(str(table.path(settings)), arrow, mode="append", commit_properties=properties)


def report(found: dict[str, list[Phase]], options: argparse.Namespace) -> None:
    """Print the medians, in all and by description of the executions, and write them down."""
    written: dict[str, Any] = {"history": options.history, "cycles": options.cycles, "machine": machine(), "phases": {}}
    heading = f"{'executions':>10} {'jobs':>5} {'stages':>6} {'commits':>7} {'seconds':>8} {'cpu s':>6} {'a job runs':>10} {'task s':>6}"
    print(f"\nbehind {options.history:,} rows; medians of {options.cycles} cycles in one warm session\n{'':32} {heading}")
    for name, phases in found.items():
        figures = {"all": row([event_log.together(phase.parts.values()) for phase in phases], None)}
        figures["all"]["seconds"] = median([phase.seconds for phase in phases])
        figures["all"]["cpu"] = median([phase.processor for phase in phases])
        figures["all"]["read"] = median([phase.read for phase in phases])
        figures["all"]["memory"] = max(phase.memory for phase in phases)
        figures["all"]["commits"] = median([sum(phase.commits.values()) for phase in phases])
        for part in sorted({part for phase in phases for part in phase.parts}):
            figures[part] = row([phase.parts.get(part, Part()) for phase in phases], [phase.commits.get(part, 0) for phase in phases])
        print(f"\n{name} new rows")
        for part, values in figures.items():
            counts = f"{values['executions']:10.0f} {values['jobs']:5.0f} {values['stages']:6.0f} {values['commits']:7.0f}"
            print(f"{part:32.32} {counts} {values['seconds']:8.2f} {values['cpu']:6.1f} {values['job']:10.2f} {values['tasks']:6.2f}")
        written["phases"][name] = figures
    if options.json:
        options.json.write_text(json.dumps(written, indent=2) + "\n", encoding="utf-8")


def row(parts: list[Part], commits: list[int] | None) -> dict[str, float]:
    """The medians of some parts' figures: `seconds` in which an execution ran, `job` in which a job did."""
    return {
        "executions": median([part.executions for part in parts]),
        "jobs": median([part.jobs for part in parts]),
        "stages": median([part.stages for part in parts]),
        "commits": median(commits or [0]),
        "seconds": median([part.busy_seconds for part in parts]),
        "cpu": 0.0,
        "job": median([part.job_seconds for part in parts]),
        "tasks": median([part.task_seconds for part in parts]),
    }


def median(values: Iterable[float]) -> float:
    """Of figures of the counted cycles."""
    return float(statistics.median(values))


def machine() -> dict[str, Any]:
    """What the figures are of."""
    return {"cores": os.cpu_count(), "memory": psutil.virtual_memory().total, "load": os.getloadavg(), "system": platform.platform()}


if __name__ == "__main__":
    main()
