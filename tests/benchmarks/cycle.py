"""What a cycle of silver, gold and the gates does in a warm session, behind a history: from Spark's event log and the tables' logs.

    python -m tests.benchmarks.cycle [--history N] [--new 10000,50] [--cycles N] [--customers N] [--late recent|any]
        [--folder DIR] [--json FILE]

A cycle is a bronze batch of each topic: so many new transactions (one in a hundred late by up to 8 days, or of any time of the history,
one in a hundred a duplicate), 20 changed customers and 20 changed accounts. The first cycles of each size warm the session and are not
counted. Data and seeds are fixed. The history is that of gold_history.py, 10,000 rows a day; one of more than 10 million rows, of which
`--history` must be a multiple, is made of the tables of that one (made_history.py). `--folder` keeps it for the next time.
"""

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from deltalake import DeltaTable

from spark_jobs.gold import job as gold
from spark_jobs.lake import tables
from spark_jobs.releases import gates
from spark_jobs.runtime.session import engine_conf, start_session
from spark_jobs.runtime.settings import Settings, read_settings
from tests.benchmarks import event_log
from tests.benchmarks.cycle_bank import Bank, arrive_batch, make_history, run_silver
from tests.benchmarks.event_log import Part
from tests.benchmarks.gold_history import RECENT_DAYS, ROWS_A_BATCH, ROWS_A_DAY
from tests.benchmarks.history import environment, link_copy, use_of

WARM_UP = 2
_WRITTEN = (*tables.SILVER_OWNED, *tables.GOLD, tables.BATCHES)


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
        home = make_history(options.folder or Path(temporary), bank)
        if not options.only_history:
            report(measure(home, Path(temporary) / "run", bank, sizes, options.cycles), options)


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
