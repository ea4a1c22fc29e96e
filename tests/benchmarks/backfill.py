"""How long a backfill of everything takes, beside the first ingestion of the same rows into silver and gold.

Bronze is filled from the generator. Each run is a process of its own, its start included. The range is rebuilt as it is, where
nothing differs; once some of silver's rows were lost; and once silver and gold were emptied.
"""

import ctypes
import os
import tempfile
from pathlib import Path

from deltalake import DeltaTable

from include.setup.class_archive import fill_bronze
from spark_jobs.lake import tables
from spark_jobs.lake.tables import Table
from spark_jobs.runtime.settings import read_settings
from tests.benchmarks.gate_cost import SET_CHILD_SUBREAPER, Step, run

ALL = "backfill --start 2000-01-01 --end 2100-01-01"
_NO_BROKER = "127.0.0.1:1"  # none is asked


def measure(transactions: int) -> None:
    """Print the seconds of each run, and their ratio to the first ingestion."""
    ctypes.CDLL(None).prctl(SET_CHILD_SUBREAPER, 1)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        settings = read_settings({"LEDGER_HOME": folder})

        def empty(*those: Table, where: str | None = None) -> None:
            for table in those:
                DeltaTable(str(table.path(settings))).delete(where)

        rows = fill_bronze(settings, transactions)
        print(f"\n{rows:,} bronze rows of {transactions:,} transactions, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
        print(f"{'run':44} {'seconds':>8} {'ratio':>6} {'cpu s':>8} {'ratio':>6}")
        silver, gold = run(home, _NO_BROKER, "silver"), run(home, _NO_BROKER, "gold")
        first = Step(silver.wall + gold.wall, silver.cpu + gold.cpu)
        tell("silver and gold, for the first time", first, first)
        tell("backfill, nothing differs", run(home, _NO_BROKER, ALL), first)
        empty(tables.SILVER_TRANSACTIONS, where="_offset % 100 = 0")
        tell("backfill, 1 % of silver's rows were lost", run(home, _NO_BROKER, ALL), first)
        empty(tables.SILVER_TRANSACTIONS, *tables.GOLD)
        tell("backfill, silver and gold were emptied", run(home, _NO_BROKER, ALL), first)


def tell(what: str, step: Step, first: Step) -> None:
    """One line of the table."""
    print(f"{what:44} {step.wall:8.1f} {step.wall / first.wall:6.2f} {step.cpu:8.1f} {step.cpu / first.cpu:6.2f}", flush=True)
