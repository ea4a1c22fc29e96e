"""`python -m tests.benchmarks [--transactions N] [--only NAME]`: benchmarks, each with a printed table.

steps: how long each step takes over N generated transactions. history: how silver depends on the rows behind it (history.py).
cost: the same of gold, table by table (gold_history.py; it makes 10 million rows for a quarter of an hour, and is run only when it is
asked for; `--folder` keeps them for the next time).
backfill: how long a backfill takes beside the first ingestion (backfill.py). explain: how long explaining a cell takes on 10 million rows
(explain.py; it makes them for minutes, and is run only when it is asked for). latency, spike: ingestion from a broker (ingestion.py).

Bronze is filled from the generator without a broker, so that the table speaks of silver, gold, the gates and the release. Each step
is a process of its own, start included, as Airflow runs it. The home is a temporary folder.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from include.setup.class_archive import fill_bronze
from spark_jobs.runtime.settings import ROOT, read_settings
from tests.benchmarks import backfill, explain, gold_history, history, ingestion

STEPS = (["silver"], ["gate", "bronze"], ["gate", "silver"], ["gold"], ["gate", "gold"], ["release"])


HISTORIES, NEW_ROWS = (100_000, 10_000_000), 10_000


def main() -> int:
    """Run the benchmarks that are asked for; returns the exit code of a step that failed, or 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks")
    parser.add_argument("--transactions", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", choices=("steps", "history", "backfill", "cost", "explain", "latency", "spike"))
    parser.add_argument("--folder", type=Path, help="of cost: where the histories stay")
    options = parser.parse_args()
    if options.only in (None, "steps") and (failed := measure_steps(options.transactions)):
        return failed
    if options.only in (None, "history"):
        with tempfile.TemporaryDirectory() as folder:
            history.measure(Path(folder), HISTORIES, options.transactions, options.repeats)
    if options.only == "cost":
        with tempfile.TemporaryDirectory() as folder:
            gold_history.measure(options.folder or Path(folder), HISTORIES, NEW_ROWS, options.repeats)
    if options.only in (None, "backfill"):
        backfill.measure(options.transactions)
    if options.only == "explain":
        with tempfile.TemporaryDirectory() as folder:
            explain.measure(Path(folder), HISTORIES[-1])
    if options.only in (None, "latency"):
        ingestion.measure_latency(rate=5_000, seconds=120)
    if options.only in (None, "spike"):
        ingestion.measure_spike(rate=5_000)
    return 0


def measure_steps(count: int) -> int:
    """Run the steps one after the other and print the table; returns the exit code of the step that failed, or 0."""
    with tempfile.TemporaryDirectory() as home:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("LEDGER_")} | {"LEDGER_HOME": home}
        rows = fill_bronze(read_settings(environment), count)
        print(f"{rows:,} bronze rows of {count:,} transactions and their customers and accounts, {os.cpu_count()} cores\n")
        print(f"{'step':14} {'seconds':>8} {'rows a second':>14}")
        for step in STEPS:
            begun = time.monotonic()
            done = subprocess.run(
                [sys.executable, "-m", "spark_jobs.run", *step], env=environment, cwd=ROOT, capture_output=True, text=True
            )
            seconds = time.monotonic() - begun
            if done.returncode != 0:
                print(done.stderr, file=sys.stderr)
                return done.returncode
            print(f"{' '.join(step):14} {seconds:8.1f} {rows / seconds:14,.0f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
