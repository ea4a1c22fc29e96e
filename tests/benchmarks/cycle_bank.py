"""The bank of the cycle: its history, and what arrives in each cycle. Data and seeds are fixed."""

import hashlib
import json
import random
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, write_deltalake
from pyspark.sql import SparkSession

from spark_jobs import control
from spark_jobs.control import rule_sets, scope
from spark_jobs.lake import sinks, tables
from spark_jobs.lake.layout import SMALL_PAGES
from spark_jobs.lake.topics import transactions
from spark_jobs.runtime.session import engine_conf, start_session
from spark_jobs.runtime.settings import Settings, read_settings
from spark_jobs.silver import id_index, job as silver
from tests.benchmarks import gold_history, made_history
from tests.benchmarks.gold_history import DAY_MS, END, ONE_IN, ROWS_A_BATCH, ROWS_A_DAY
from tests.benchmarks.history import PARTITIONS, environment, link_copy
from tests.support.publishing import pass_gates

CHANGED = 20
LONGEST = 10_000_000  # longer histories are made of the tables of this one
_FOR_HISTORY = engine_conf() | {"spark.driver.memory": "2g"}
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


def make_history(folder: Path, bank: Bank) -> Path:
    """The home of a history: bronze, silver and gold as runs of the jobs would have left them; nothing is made again.

    One of more than LONGEST rows is made of the tables of that one. Raises SystemExit where it is no multiple.
    """
    home, computed = (folder / f"cycle-{rows}-{bank.customers}" for rows in (bank.history, min(bank.history, LONGEST)))
    if bank.history > LONGEST and bank.history % LONGEST:
        raise SystemExit(f"--history: found {bank.history}, expected at most {LONGEST}, or a multiple of it")
    if (home / "done").exists():
        return home
    shutil.rmtree(home, ignore_errors=True)
    if home != computed:
        link_copy(make_history(folder, replace(bank, history=LONGEST)), home)
        (home / "done").unlink()
    settings, last = read_settings(environment(home)), 1 + (bank.history - 1) // ROWS_A_BATCH
    spark = start_session(settings, "history", _FOR_HISTORY)
    if home == computed:
        compute(spark, settings, bank, last)
    else:
        made_history.repeat(spark, settings, bank.history // LONGEST, LONGEST // ROWS_A_DAY)
    spark.stop()
    gold_history.stop_jvm()
    common = {"first_batch": 1, "last_batch": last, "output": bank.history, "finished_at": END, "_newest_event_at": END}
    done = [common | {"job": "silver", "table": "silver.transactions"}]
    control.append(settings, tables.BATCHES, done + [common | {"job": "gold", "table": table.name} for table in tables.GOLD])
    pass_gates(settings, last)
    (home / "done").touch()
    return home


def compute(spark: SparkSession, settings: Settings, bank: Bank, last: int) -> None:
    """Compute silver and gold of the rows of a history, up to a batch."""
    tables.ensure_tables(settings, (*tables.BRONZE, *tables.SILVER, *tables.SILVER_INDEXES, *tables.GOLD, *tables.CONTROL))
    arrive(settings, "customers", 1, [customer(number, "Ely", 0) for number in range(bank.customers)])
    arrive(settings, "accounts", 1, [account(number, number % 77, 0) for number in range(bank.accounts)])
    run_silver(spark, settings, "history")
    count = bank.history
    with sinks.configured(spark, id_index.SESSION):
        rows = gold_history.transactions(
            spark, count, gold_history.late_one_in(ONE_IN, "late", most=2 * DAY_MS), keys=(bank.customers, bank.accounts)
        )
        ordered = rows.repartitionByRange(1 + count // (2 * gold_history.ROWS_A_FILE), *tables.ARRIVAL)
        gold_history.append(settings, tables.SILVER_TRANSACTIONS, ordered.sortWithinPartitions(*tables.ARRIVAL), "silver")
        id_index.catch_up(spark, settings, transactions.TOPIC, "silver", last)
    with sinks.configured(spark, SMALL_PAGES):
        gold_history.make_gold(spark, settings, count)


def run_silver(spark: SparkSession, settings: Settings, run_id: str) -> None:
    """What `run silver` does."""
    rule_sets.register(settings, {table.topic: table for table in tables.BRONZE})
    silver.run(spark, settings, run_id, scope.unread_bronze(settings))


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
