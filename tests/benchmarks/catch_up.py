"""How fast silver catches up, beside plain PySpark: both read the same bronze rows, each in a process of its own, start included.

    python -m tests.benchmarks.catch_up [--transactions N] [--repeats N] [--folder DIR] [--only silver,peer]

Bronze is that of the generator without a broker: transactions with 5 % duplicates and 5 % malformed copies, customers, accounts. The
peer does for the transactions what a tutorial shows: a typed `from_json`, the first of each id by a window, bad rows apart, Delta. It
keeps no rules, counts, histories, late rows or index of ids, and takes JSON that silver refuses. `--folder` keeps bronze for the next time.
"""

import argparse
import os
import shutil
import tempfile
from pathlib import Path

from pyspark.sql import Window, functions as F

from include.setup.class_archive import fill_bronze
from spark_jobs.lake import tables
from spark_jobs.runtime.session import start_session
from spark_jobs.runtime.settings import read_settings
from tests.benchmarks.history import Measured, environment, link_copy, median, run_module

_FIELDS = (
    "transactionId string, accountId string, customerId string, eventTime bigint, type string, operation string, "
    "amount decimal(18,2), balance decimal(18,2)"
)


def main() -> None:
    """Fill bronze, run both in turns, and print the medians."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.catch_up")
    parser.add_argument("--transactions", type=int, default=500_000)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="where bronze stays")
    parser.add_argument("--only", default="silver,peer", help="silver, peer, or both")
    parser.add_argument("--run-peer", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run_peer:
        run_peer(options.run_peer)
        return
    with tempfile.TemporaryDirectory() as temporary:
        home, count = (options.folder or Path(temporary)) / f"bronze-{options.transactions}", options.transactions
        if not (home / "rows").exists():
            shutil.rmtree(home, ignore_errors=True)
            (home / "rows").write_text(str(fill_bronze(read_settings(environment(home)), count)))
        measure(home, Path(temporary) / "run", options.only.split(","), options.repeats)


def measure(home: Path, copy: Path, names: list[str], repeats: int) -> None:
    """Print how long each takes, by turns, on copies of a home."""
    rows = int((home / "rows").read_text())
    print(f"{rows:,} bronze rows, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; medians of {repeats} runs", flush=True)
    runs: dict[str, list[Measured]] = {name: [] for name in names}
    for _ in range(repeats):
        for name in names:
            link_copy(home, copy)
            words = ["spark_jobs.run", "silver"] if name == "silver" else ["tests.benchmarks.catch_up", "--run-peer", str(copy)]
            runs[name].append(run_module(words, copy))
            shutil.rmtree(copy)
    for name, found in runs.items():
        middle = median(found)
        print(f"{name:8} {middle.seconds:8.1f} s {middle.processor:8.1f} cpu s {rows / middle.seconds:10,.0f} rows a second", flush=True)


def run_peer(home: Path) -> None:
    """Plain PySpark, as a tutorial writes it."""
    settings = read_settings(environment(home))
    spark = start_session(settings, "peer")
    bronze = spark.read.format("delta").load(str(tables.BRONZE_TRANSACTIONS.path(settings)))
    parsed = bronze.withColumn("json", F.from_json(F.col("value").cast("string"), _FIELDS)).select(
        "json.*", "key", "value", *tables.ARRIVAL
    )
    parsed = parsed.withColumn("is_good", F.col("transactionId").isNotNull() & F.col("amount").isNotNull() & F.col("eventTime").isNotNull())
    by_id = Window.partitionBy("transactionId").orderBy(*tables.ARRIVAL)
    good = parsed.where("is_good").withColumn("place", F.row_number().over(by_id)).drop("is_good", "key", "value")
    for name, rows in (
        ("transactions", good.where("place = 1")),
        ("duplicates", good.where("place > 1")),
        ("bad", parsed.where("not is_good").select("key", "value", *tables.ARRIVAL)),
    ):
        rows.write.format("delta").save(str(home / "peer" / name))
    spark.stop()


if __name__ == "__main__":
    main()
