"""How long `run explain` takes over a year of so many transactions, a process each, its start included.

Silver is written straight into its tables, in order of arrival: one row in a hundred has a duplicate, one in a thousand is late by
up to two days. Gold is made of it by the pure functions of the gold job.
"""

import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from deltalake import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession, functions as F

from spark_jobs import control
from spark_jobs.gold.tables.account_balances import account_balances
from spark_jobs.gold.tables.account_days import account_days, with_openings
from spark_jobs.gold.tables.cumulative_totals import cumulative_totals
from spark_jobs.gold.tables.customer_activity import customer_activity
from spark_jobs.gold.tables.customer_sessions import customer_sessions
from spark_jobs.gold.tables.daily_totals import daily_totals
from spark_jobs.gold.tables.debit_credit_pairs import pair
from spark_jobs.gold.tables.debit_share import debit_share
from spark_jobs.gold.tables.district_minutes import district_minutes
from spark_jobs.gold.tables.enriched_transactions import enrich
from spark_jobs.gold.tables.large_credits import large_credits
from spark_jobs.gold.tables.sliding_totals import sliding_totals
from spark_jobs.gold.tables.weekly_top_customers import weekly_top_customers
from spark_jobs.lake import sinks, sources, tables
from spark_jobs.lake.tables import Table
from spark_jobs.runtime.session import start_session
from spark_jobs.runtime.settings import ROOT, Settings, read_settings
from tests.benchmarks.history import MOMENT, PARTITIONS, environment, size_of

ROWS_A_BATCH, BATCHES_A_RUN, LATE_ONE_IN, DUPLICATE_ONE_IN = 10_000, 20, 1_000, 100
YEAR_MS, TWO_DAYS_MS = 365 * 86_400_000, 2 * 86_400_000
WHERE = {
    tables.DAILY_TOTALS: "window_start = '2013-07-05' and type = 'Debit'",
    tables.SLIDING_TOTALS: "window_start = '2013-07-05 02:00:00' and type = 'Debit'",
    tables.CUMULATIVE_TOTALS: "window_start = '2013-07-05' and window_end = '2013-07-05 12:00:00' and type = 'Debit'",
    tables.CUSTOMER_SESSIONS: "customer_id = 'C00000042' and session_start < '2013-07-05' and session_end > '2013-07-04'",
    tables.WEEKLY_TOP_CUSTOMERS: "window_start = '2013-07-04' and rank = 1",
    tables.CUSTOMER_ACTIVITY: "customer_id = 'C00000042'",
    tables.LARGE_CREDITS: "transaction_id = '{id}'",
    tables.ENRICHED_TRANSACTIONS: "transaction_id = '{id}'",
    tables.DEBIT_CREDIT_PAIRS: "customer_id = 'C00000042' and debit_at between '2013-07-01' and '2013-07-15'",
    tables.ACCOUNT_BALANCES: "account_id = 'A00000042'",
    tables.DISTRICT_MINUTES: "minute = '2013-07-05 10:30:00'",
    tables.DEBIT_SHARE: "day = '2013-12-31'",
    tables.ACCOUNT_DAYS: "account_id = 'A00000042' and day = '2013-07-05'",
}


def measure(folder: Path, count: int) -> None:
    """Print the seconds that explaining a cell of each table takes, and what it said of its sums."""
    surroundings = environment(folder)
    settings = read_settings(surroundings)
    make_history(settings, count)
    large = control.query(_delta(settings, tables.LARGE_CREDITS), "select transaction_id from t order by event_at limit 1 offset 1000")
    silver = size_of(settings, tables.SILVER_TRANSACTIONS) / 1e6
    print(f"\n{count:,} rows of silver.transactions ({silver:,.0f} MB); each line is a process of its own")
    print(f"{'table':28} {'seconds':>8}  what it says")
    for table, where in WHERE.items():
        words = ["explain", "--table", table.name, "--where", where.format(id=large["transaction_id"][0].as_py())]
        begun = time.monotonic()
        done = subprocess.run([sys.executable, "-m", "spark_jobs.run", *words], env=surroundings, cwd=ROOT, capture_output=True, text=True)
        seconds = time.monotonic() - begun
        said = [line.strip() for line in done.stdout.splitlines() if line.startswith("  sums:")] or [done.stderr.strip()[-200:]]
        print(f"{table.name:28} {seconds:8.1f}  {said[0]}", flush=True)


def make_history(settings: Settings, count: int) -> None:
    """Silver, gold and the record of their runs."""
    tables.ensure_tables(settings, (*tables.SILVER, *tables.GOLD, *tables.CONTROL))
    spark = start_session(settings, "history of explain")
    silver = _transactions(spark, count)
    _append(settings, tables.SILVER_TRANSACTIONS, sinks.in_order(silver, tables.ARRIVAL, count))
    rows = sources.read_table(spark, settings, tables.SILVER_TRANSACTIONS)
    place = [F.col(name).alias(f"first{name}") for name in ("_topic", "_partition", "_offset")]
    duplicates = rows.where(_hash("duplicate", DUPLICATE_ONE_IN) == 0).select(
        "transaction_id", F.lit(False).alias("is_conflicting"), *place, "_topic", "_partition", F.col("_offset") + count, "_batch"
    )
    _append(settings, tables.TRANSACTIONS_DUPLICATES, duplicates.toDF(*tables.TRANSACTIONS_DUPLICATES.columns).coalesce(1))
    late = rows.where(F.col("operation") == "late").withColumns(
        {"watermark_at": F.col("event_at") + F.expr("interval 1 hour"), "late_by_seconds": F.lit("3600.000").cast("decimal(18,3)")}
    )
    _append(settings, tables.TRANSACTIONS_LATE, late.coalesce(1))
    for table, versions in ((tables.SILVER_CUSTOMERS, customers(spark)), (tables.SILVER_ACCOUNTS, accounts(spark))):
        _append(settings, table, versions)
    _make_gold(spark, settings, rows)
    spark.stop()
    _record_runs(settings, count)


def _make_gold(spark: SparkSession, settings: Settings, rows: DataFrame) -> None:
    month = rows.where(F.col("event_on").between("2013-07-01", "2013-07-31"))  # of tables that would take long to make, and are small
    customers, accounts = (sources.read_table(spark, settings, table) for table in (tables.SILVER_CUSTOMERS, tables.SILVER_ACCOUNTS))
    make: dict[Table, Callable[[], DataFrame]] = {
        tables.DAILY_TOTALS: lambda: daily_totals(rows),
        tables.SLIDING_TOTALS: lambda: sliding_totals(month),
        tables.CUMULATIVE_TOTALS: lambda: cumulative_totals(month),
        tables.CUSTOMER_SESSIONS: lambda: customer_sessions(rows),
        tables.WEEKLY_TOP_CUSTOMERS: lambda: weekly_top_customers(rows),
        tables.CUSTOMER_ACTIVITY: lambda: customer_activity(rows),
        tables.LARGE_CREDITS: lambda: large_credits(rows, settings.large_credit),
        tables.ENRICHED_TRANSACTIONS: lambda: enrich(rows, customers),
        tables.DEBIT_CREDIT_PAIRS: lambda: pair(month, month),
        tables.ACCOUNT_BALANCES: lambda: account_balances(rows),
        tables.DISTRICT_MINUTES: lambda: district_minutes(rows, accounts),
        tables.DEBIT_SHARE: lambda: debit_share(sources.read_table(spark, settings, tables.DAILY_TOTALS)),
        tables.ACCOUNT_DAYS: lambda: with_openings(account_days(rows)),
    }
    for table, made in make.items():
        begun = time.monotonic()
        _append(settings, table, made())
        print(f"made {table.name} in {time.monotonic() - begun:.0f} s", flush=True)


def _append(settings: Settings, table: Table, rows: DataFrame) -> None:
    rows.select(*table.columns).write.format("delta").mode("append").save(str(table.path(settings)))


def _hash(salt: str, most: int) -> Column:
    return F.pmod(F.xxhash64("transaction_id", F.lit(salt)), F.lit(most))


def _transactions(spark: SparkSession, count: int) -> DataFrame:
    number = F.col("id")
    named = spark.range(count).withColumn("transaction_id", F.substring(F.md5(number.cast("string")), 1, 16))
    is_late = _hash("late", LATE_ONE_IN) == 0
    millis = F.lit(MOMENT) + F.floor(number * (YEAR_MS / count)) - F.when(is_late, _hash("by", TWO_DAYS_MS)).otherwise(0)
    return named.withColumn("event_at", F.timestamp_millis(millis.cast("bigint"))).select(
        "transaction_id",
        F.format_string("A%08d", _hash("account", 4500)).alias("account_id"),
        F.format_string("C%08d", _hash("customer", 5300)).alias("customer_id"),
        "event_at",
        F.to_date("event_at").alias("event_on"),
        F.when(_hash("type", 2) == 0, "Credit").otherwise("Debit").alias("type"),
        F.when(is_late, "late").alias("operation"),
        (_hash("amount", 10_000_000) / 100).cast("decimal(18,2)").alias("amount"),
        (_hash("balance", 10_000_000) / 100).cast("decimal(18,2)").alias("balance"),
        F.lit("transactions").alias("_topic"),
        (number % PARTITIONS).cast("int").alias("_partition"),
        F.floor(number / PARTITIONS).alias("_offset"),
        (1 + F.floor(number / ROWS_A_BATCH)).alias("_batch"),
    )


def customers(spark: SparkSession) -> DataFrame:
    """silver.customers, a version each."""
    id_ = F.format_string("C%08d", "id").alias("customer_id")
    named = spark.range(5300).select(id_, F.lit("Ada Lovelace").alias("full_name"), F.lit("Ely").alias("city"), F.lit("NM").alias("state"))
    return _versions(named, tables.SILVER_CUSTOMERS)


def accounts(spark: SparkSession) -> DataFrame:
    """silver.accounts, a version each."""
    id_ = F.format_string("A%08d", "id").alias("account_id")
    return _versions(spark.range(4500).select(id_, (F.col("id") % 77).cast("int").alias("district_id")), tables.SILVER_ACCOUNTS)


def _versions(keys: DataFrame, table: Table) -> DataFrame:
    """One version each, from before the first transaction on."""
    place = {
        "_topic": F.lit(table.name.split(".")[1]),
        "_partition": F.lit(0),
        "_offset": F.monotonically_increasing_id(),
        "_batch": F.lit(1),
    }
    validity = {"valid_from": F.timestamp_millis(F.lit(MOMENT - 2 * TWO_DAYS_MS)), "is_current": F.lit(True), "is_deleted": F.lit(False)}
    known = keys.withColumns(place | validity)
    missing = [name for name in table.columns if name not in known.columns]
    kinds = {"birth_date": "date", "creation_date": "date", "valid_to": "timestamp", "district_id": "int"}
    return known.withColumns({name: F.lit(None).cast(kinds.get(name, "string")) for name in missing}).select(
        *table.columns[:-4], "_topic", "_partition", "_offset", F.col("_batch").cast("bigint").alias("_batch")
    )


def _record_runs(settings: Settings, count: int) -> None:
    """control.batches as runs of silver and gold would have left it, each of the same number of batches."""
    step, last = BATCHES_A_RUN, 1 + (count - 1) // ROWS_A_BATCH
    rows = []
    for number, first in enumerate(range(1, last + 1, step)):
        common = {"first_batch": first, "last_batch": min(first + step - 1, last), "rules_version": "1"}
        common["finished_at"] = datetime.fromtimestamp(MOMENT / 1000 + number * 3600, UTC)
        rows += [common | {"run_id": f"silver-{number}", "job": "silver", "table": "silver.transactions"}]
        rows += [common | {"run_id": f"gold-{number}", "job": "gold", "table": table.name, "rules_version": None} for table in tables.GOLD]
    for table in ("silver.customers", "silver.accounts"):
        rows.append({"run_id": "silver-0", "job": "silver", "table": table, "first_batch": 1, "last_batch": 1, "rules_version": "1"})
        rows[-1]["finished_at"] = datetime.fromtimestamp(MOMENT / 1000, UTC)
    control.append(settings, tables.BATCHES, rows)


def _delta(settings: Settings, table: Table) -> DeltaTable:
    return DeltaTable(str(table.path(settings)))
