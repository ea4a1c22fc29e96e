"""`python -m tests.benchmarks [--transactions N]`: how long each step takes over N generated transactions, as a printed table.

Bronze is filled from the generator without a broker, so that the table speaks of silver, gold, the gates and the release. Each step
is a process of its own, start included, as Airflow runs it. The home is a temporary folder.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time

from include.spark.class_archive import fill_bronze
from spark_jobs.settings import ROOT, read_settings

STEPS = (["silver"], ["gate", "bronze"], ["gate", "silver"], ["gold"], ["gate", "gold"], ["release"])


def main() -> int:
    """Run the steps one after the other and print the table; returns the exit code of the step that failed, or 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks")
    parser.add_argument("--transactions", type=int, default=100_000)
    count = parser.parse_args().transactions
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
