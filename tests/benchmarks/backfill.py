"""How long a backfill of everything takes, beside the first ingestion of the same rows into silver and gold.

Bronze is filled from the generator. Each run is a process of its own, its start included. The range is rebuilt as it is, where
nothing differs; once some of silver's rows were lost; and once silver and gold were emptied. Then days of about 40,000 rows, in one warm
session, without gates.
"""

import ctypes
import os
import tempfile
import time
from datetime import date, timedelta
from pathlib import Path

from deltalake import DeltaTable

from include.setup.class_archive import fill_bronze
from spark_jobs import control
from spark_jobs.lake import tables
from spark_jobs.lake.tables import Table
from spark_jobs.reprocessing import backfill
from spark_jobs.runtime.session import engine_conf, start_session
from spark_jobs.runtime.settings import Settings, read_settings
from spark_jobs.runtime.times import midnight
from tests.benchmarks.gate_cost import SET_CHILD_SUBREAPER, Step, run

ALL = "backfill --start 2000-01-01 --end 2100-01-01"
DAYS_ROWS = 40_000
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
        rebuild_days(settings)


def rebuild_days(settings: Settings) -> None:
    """Print the seconds of backfills of some days each, one after the other in a warm session; the first two warm it."""
    by_day = control.query(tables.SILVER_TRANSACTIONS.open(settings), "select event_on, count(*) as n from t group by event_on order by 1")
    days = by_day.to_pylist()[by_day.num_rows // 3 :]
    spark = start_session(settings, "backfill", engine_conf())
    for number in range(2 + 3):
        taken, rows = list[date](), 0
        while days and rows < DAYS_ROWS:
            day = days.pop(0)
            taken, rows = [*taken, day["event_on"]], rows + day["n"]
        start, end = midnight(taken[0]), midnight(taken[-1]) + timedelta(days=1)
        begun = time.monotonic()
        backfill.run(spark, settings, backfill.Request(start, end, tables.REBUILT), f"days-{number}")
        print(
            f"{f'{len(taken)} days of {rows:,} rows' + (', warming up' if number < 2 else ''):44} {time.monotonic() - begun:8.1f}",
            flush=True,
        )
    spark.stop()


def tell(what: str, step: Step, first: Step) -> None:
    """One line of the table."""
    print(f"{what:44} {step.wall:8.1f} {step.wall / first.wall:6.2f} {step.cpu:8.1f} {step.cpu / first.cpu:6.2f}", flush=True)
