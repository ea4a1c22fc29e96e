"""How a gold run over new rows depends on the history behind it: its time, and what it reads; in all, and table by table.

Histories have the same rows a day and end at the same moment, so a longer one begins earlier. One row in a hundred of them is late by
up to two days. Silver is written in order of arrival and gold by the pure functions of the gold job, in files as maintenance leaves them.
Of the new rows one in a hundred is late too: by up to 8 days (`recent`), or of any moment of the history (`any day`).
"""

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark import SparkContext
from pyspark.sql import Column, DataFrame, SparkSession, functions as F

from spark_jobs import control
from spark_jobs.gold import job
from spark_jobs.gold.tables.account_balances import account_balances
from spark_jobs.gold.tables.account_days import account_days, with_openings
from spark_jobs.gold.tables.cumulative_totals import cumulative_totals
from spark_jobs.gold.tables.customer_activity import customer_activity
from spark_jobs.gold.tables.customer_sessions import customer_sessions
from spark_jobs.gold.tables.daily_totals import daily_totals
from spark_jobs.gold.tables.debit_share import debit_share
from spark_jobs.gold.tables.district_minutes import district_minutes
from spark_jobs.gold.tables.enriched_transactions import enrich
from spark_jobs.gold.tables.large_credits import large_credits
from spark_jobs.gold.tables.sliding_totals import sliding_totals
from spark_jobs.gold.tables.weekly_top_customers import weekly_top_customers
from spark_jobs.lake import sinks, sources, tables
from spark_jobs.lake.layout import SMALL_PAGES, order_of
from spark_jobs.lake.tables import Table
from spark_jobs.lake.txn import applied
from spark_jobs.runtime.session import start_session
from spark_jobs.runtime.settings import Settings, read_settings
from spark_jobs.silver import id_index
from tests.benchmarks import explain
from tests.benchmarks.history import PARTITIONS, Measured, environment, exponent, link_copy, median, run_job, size_of, use_of
from tests.support import kill_points

ROWS_A_DAY, ROWS_A_BATCH, ROWS_A_FILE, ONE_IN = 10_000, 10_000, 250_000, 100
DAY_MS = 86_400_000
END = datetime(2016, 1, 10, 12, tzinfo=UTC)
LATENESS = ("recent", "any day")
RECENT_DAYS = 8


def measure(folder: Path, histories: Sequence[int], new_rows: int, repeats: int) -> None:
    """Print, for each number of rows of history, the median of some runs and how it compares with the first; then the tables of one run."""
    for history in histories:
        make_history(folder / f"gold-{history}", history, new_rows)
    for lateness in LATENESS:
        runs: dict[int, list[Measured]] = {history: [] for history in histories}
        for _ in range(repeats):
            for history in histories:
                with changed_copy(folder, history, lateness) as home:
                    runs[history].append(run_job("gold", home))
        print(f"\n{new_rows:,} new rows of silver, 1 % of them late ({lateness}); medians of {repeats} runs")
        print(f"{'rows of history':>16} {'seconds':>8} {'ratio':>6} {'cpu s':>6} {'ratio':>6}", end=" ")
        print(f"{'read MB':>8} {'ratio':>6} {'gold MB':>8} {'exponent':>9}")
        base = median(runs[histories[0]])
        for history in histories:
            found = median(runs[history])
            size = sum(size_of(read_settings(environment(folder / f"gold-{history}")), table) for table in tables.GOLD)
            wall = f"{history:>16,} {found.seconds:8.1f} {found.seconds / base.seconds:6.2f}"
            processor = f"{found.processor:6.1f} {found.processor / base.processor:6.2f}"
            read = f"{found.bytes_read / 1e6:8.0f} {found.bytes_read / base.bytes_read:6.2f}"
            grows = f"{exponent([histories[0], history], [base.processor, found.processor]):9.3f}"
            print(f"{wall} {processor} {read} {size / 1e6:8.0f} {grows}", flush=True)
        for history in histories:
            with changed_copy(folder, history, lateness) as home:
                print_tables(home, f"\ntable by table, behind {history:,} rows ({lateness}); one run")


@dataclass(frozen=True)
class Noted:
    """A point that the job has passed: when, and what its JVM had used by then: processor seconds, and bytes read."""

    point: str
    at: float
    processor: float
    read: int


def print_tables(home: Path, title: str) -> None:
    """Run gold in this process, and print what each table cost between the end of the one before and its own."""
    settings = read_settings(environment(home))
    spark = start_session(settings, "gold")
    (jvm,) = psutil.Process().children()
    noted = [Noted("", time.monotonic(), *use_of(jvm))]
    with noting(lambda name: noted.append(Noted(name, time.monotonic(), *use_of(jvm)))):
        job.run(spark, settings, "benchmark")
    spark.stop()
    stop_jvm()
    print(f"{title}\n{'table':28} {'seconds':>8} {'cpu s':>6} {'read MB':>8} {'files':>6}")
    for before, after in pairwise([noted[0], *(each for each in noted if each.point.startswith("after "))]):
        name = after.point.removeprefix("after ")
        files = len(pa.table(DeltaTable(str(tables.BY_NAME[name].path(settings))).get_add_actions()))
        processor, read = after.processor - before.processor, after.read - before.read
        print(f"{name:28} {after.at - before.at:8.1f} {processor:6.1f} {read / 1e6:8.1f} {files:6}", flush=True)


@contextmanager
def noting(note: Callable[[str], object]) -> Iterator[None]:
    """Within, every kill point is told of; each write begins and ends with one."""
    with pytest.MonkeyPatch.context() as patch:
        kill_points.reach(patch, note)
        yield


def stop_jvm() -> None:
    """End the JVM of this process, so that the next session starts as a job does."""
    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()
    SparkContext._gateway = SparkContext._jvm = None


@contextmanager
def changed_copy(folder: Path, history: int, lateness: str) -> Iterator[Path]:
    """A copy of a home (data files are linked: nobody changes them) to which silver has added the new rows."""
    home, copy = folder / f"gold-{history}", folder / "gold-run"
    shutil.rmtree(copy, ignore_errors=True)
    link_copy(home, copy)
    settings = read_settings(environment(copy))
    rows = pq.read_table(home / f"{lateness}.parquet")
    write_deltalake(str(tables.SILVER_TRANSACTIONS.path(settings)), rows, mode="append")
    yield copy
    shutil.rmtree(copy)


def make_history(home: Path, count: int, new_rows: int) -> None:
    """Silver and gold of so many transactions, and the new rows of either lateness beside them; nothing, where it was made before."""
    done = home / "done"
    if done.exists():
        return
    shutil.rmtree(home, ignore_errors=True)
    settings = read_settings(environment(home))
    tables.ensure_tables(settings, (*tables.SILVER, *tables.GOLD, *tables.CONTROL))
    spark = start_session(settings, "history", {"spark.driver.memory": "6g"})
    begun = time.monotonic()
    with sinks.configured(spark, id_index.SESSION):
        silver = transactions(spark, count, late_one_in(ONE_IN, "late", most=2 * DAY_MS))
        ordered = silver.repartitionByRange(1 + count // (2 * ROWS_A_FILE), *tables.ARRIVAL).sortWithinPartitions(*tables.ARRIVAL)
        append(settings, tables.SILVER_TRANSACTIONS, ordered, "silver")
    append(settings, tables.SILVER_CUSTOMERS, explain.customers(spark), "silver")
    append(settings, tables.SILVER_ACCOUNTS, explain.accounts(spark), "silver")
    print(f"made silver in {time.monotonic() - begun:.0f} s", flush=True)
    with sinks.configured(spark, SMALL_PAGES):
        make_gold(spark, settings, count)
    start = 1000 * int(END.timestamp()) - count * DAY_MS // ROWS_A_DAY
    for lateness in LATENESS:
        most = RECENT_DAYS * DAY_MS if lateness == "recent" else 1000 * int(END.timestamp()) - start
        late = transactions(spark, new_rows, late_one_in(ONE_IN, "new", most), first=count, day_rows=new_rows)
        pq.write_table(late.toArrow().cast(pa.schema(tables.SILVER_TRANSACTIONS.delta_schema().to_arrow())), home / f"{lateness}.parquet")
    spark.stop()
    stop_jvm()
    last = 1 + (count - 1) // ROWS_A_BATCH
    common = {"first_batch": 1, "last_batch": last, "output": count, "finished_at": END}
    rows = [common | {"job": "silver", "table": "silver.transactions"}]
    rows += [common | {"job": "gold", "table": table.name} for table in tables.GOLD]
    control.append(settings, tables.BATCHES, rows)
    done.touch()


def transactions(
    spark: SparkSession,
    count: int,
    lateness: Callable[[Column], Column],
    first: int = 0,
    day_rows: int = ROWS_A_DAY,
    keys: tuple[int, int] = (5300, 4500),
) -> DataFrame:
    """Rows of silver with the numbers from `first` on: of the days up to END, or (with `first`) from END on.

    `keys`: of how many customers and accounts.
    """
    customers, accounts = keys
    number, millis = F.col("id"), 1000 * int(END.timestamp()) - (0 if first else count * DAY_MS // day_rows)
    named = spark.range(first, first + count).withColumn("transaction_id", F.substring(F.md5(number.cast("string")), 1, 16))
    in_time = F.lit(millis) + F.floor((number - first) * (DAY_MS / day_rows))
    late = lateness(in_time)
    return named.withColumn("event_at", F.timestamp_millis(late.cast("bigint"))).select(
        "transaction_id",
        F.format_string("A%08d", some("account", accounts)).alias("account_id"),
        F.format_string("C%08d", some("customer", customers)).alias("customer_id"),
        "event_at",
        F.to_date("event_at").alias("event_on"),
        F.when(some("type", 2) == 0, "Credit").otherwise("Debit").alias("type"),
        F.when(some("operation", 3) == 0, "Credit in Cash").alias("operation"),
        (some("amount", 10_000_000) / 100).cast("decimal(18,2)").alias("amount"),
        (some("balance", 10_000_000) / 100).cast("decimal(18,2)").alias("balance"),
        F.lit("transactions").alias("_topic"),
        (number % PARTITIONS).cast("int").alias("_partition"),
        F.floor(number / PARTITIONS).alias("_offset"),
        (1 + F.floor(number / ROWS_A_BATCH)).alias("_batch"),
    )


def late_one_in(one_in: int, salt: str, most: int) -> Callable[[Column], Column]:
    """Moves one in so many moments (milliseconds) back, by up to `most`."""
    return lambda moment: moment - F.when(some(salt, one_in) == 0, some(f"by {salt}", most)).otherwise(0)


def some(salt: str, most: int) -> Column:
    """A number below `most` that the id of the transaction chooses."""
    return F.pmod(F.xxhash64("transaction_id", F.lit(salt)), F.lit(most))


def make_gold(spark: SparkSession, settings: Settings, count: int) -> None:
    """Every gold table of silver as it is, in files of neighbours in time."""
    rows, customers, accounts = (sources.read_table(spark, settings, table) for table in tables.FOLLOWERS)
    make: dict[Table, Callable[[], DataFrame]] = {
        tables.DAILY_TOTALS: lambda: daily_totals(rows),
        tables.SLIDING_TOTALS: lambda: sliding_totals(rows),
        tables.CUMULATIVE_TOTALS: lambda: cumulative_totals(rows),
        tables.CUSTOMER_SESSIONS: lambda: customer_sessions(rows),
        tables.WEEKLY_TOP_CUSTOMERS: lambda: weekly_top_customers(rows),
        tables.CUSTOMER_ACTIVITY: lambda: customer_activity(rows),
        tables.LARGE_CREDITS: lambda: large_credits(rows, settings.large_credit),
        tables.ENRICHED_TRANSACTIONS: lambda: enrich(rows, customers),
        tables.DEBIT_CREDIT_PAIRS: lambda: all_pairs(rows),
        tables.ACCOUNT_BALANCES: lambda: account_balances(rows),
        tables.DISTRICT_MINUTES: lambda: district_minutes(rows, accounts),
        tables.DEBIT_SHARE: lambda: debit_share(sources.read_table(spark, settings, tables.DAILY_TOTALS)),
        tables.ACCOUNT_DAYS: lambda: with_openings(account_days(rows)),
    }
    for table, made in make.items():
        if applied(settings, table, "gold"):
            continue
        begun = time.monotonic()
        order = order_of(table)
        append(settings, table, made().repartitionByRange(1 + count // ROWS_A_FILE, *order).sortWithinPartitions(*order), "gold")
        size = size_of(settings, table) / 1e6
        print(f"made {table.name} in {time.monotonic() - begun:.0f} s: {size:.1f} MB", flush=True)
    empty = {source: followers for source, followers in tables.FOLLOWERS.items() if source != tables.SILVER_TRANSACTIONS}
    for source, followers in empty.items():
        for table in followers:
            append(settings, table, sources.read_table(spark, settings, table).limit(0), control.following(settings, source))


def all_pairs(rows: DataFrame) -> DataFrame:
    """gold.debit_credit_pairs of all rows: `pairs.pair` would compare each row of a customer with each other, this those of two hours."""
    hour = F.floor(F.unix_seconds("event_at") / 3600)
    debits = rows.where("type = 'Debit'").select(
        F.col("transaction_id").alias("debit_id"), "customer_id", F.col("event_at").alias("debit_at"), hour.alias("hour")
    )
    credit_rows = rows.where("type = 'Credit'").select(
        F.col("transaction_id").alias("credit_id"),
        "customer_id",
        F.col("event_at").alias("credit_at"),
        F.explode(F.array(hour, hour - 1)).alias("hour"),
    )
    is_close = F.col("debit_at").between(F.col("credit_at") - F.expr("interval 1 hour"), F.col("credit_at"))
    return debits.join(credit_rows, on=["customer_id", "hour"], how="inner").where(is_close)


def append(settings: Settings, table: Table, rows: DataFrame, application: str) -> None:
    """Add rows, and note that the table has come as far as the first commit of what it follows."""
    writer = rows.select(*table.columns).write.format("delta").mode("append")
    writer.option("txnAppId", application).option("txnVersion", 1).save(str(table.path(settings)))
