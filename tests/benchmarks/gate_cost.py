"""`python -m tests.benchmarks.gate_cost [--transactions N]`: what each gate costs beside its layer's job, as two printed tables.

N generated transactions go through an embedded broker, with 1 % duplicates and 1 % malformed rows, and then a batch of 500 more, each
step a process of its own, start included, as Airflow runs it. `cpu` is user and system time of all that a step started; on a machine
with other work it says more than `wall`. `start` is the import of Great Expectations, which is no part of the share.
"""

import argparse
import ctypes
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from include.producer import Disturbances, generated_sources, plan_messages, publish
from spark_jobs.runtime.kafka_config import Broker
from spark_jobs.runtime.settings import ROOT
from tests.support.brokers import running_broker

SMALL_BATCH = 500
MOST_SHARE, MOST_SECONDS = 0.15, 10.0
SET_CHILD_SUBREAPER = 36  # prctl(2): a JVM that outlives its driver becomes our child, so that its time is counted
_TOOK = {
    "measuring": re.compile(r"measuring \d+ tables took ([0-9.]+) s"),
    "judging": re.compile(r"Great Expectations took ([0-9.]+) s"),
    "start": re.compile(r"Great Expectations took [0-9.]+ s, and ([0-9.]+) s to start"),
}


@dataclass(frozen=True)
class Step:
    """What a step took, in seconds; the last three of a gate only."""

    wall: float
    cpu: float
    measuring: float = 0.0
    judging: float = 0.0
    start: float = 0.0


def main() -> int:
    """Print the tables; returns 1 when a gate costs more than it may."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.gate_cost")
    parser.add_argument("--transactions", type=int, default=100_000)
    count = parser.parse_args().transactions
    with tempfile.TemporaryDirectory(prefix="gate-cost-") as folder:
        home = Path(folder)
        with running_broker(home) as bootstrap:
            ctypes.CDLL(None).prctl(SET_CHILD_SUBREAPER, 1)
            large = measure(home, bootstrap, count, seed=0)
            small = measure(home, bootstrap, SMALL_BATCH, seed=1)
    slow = [layer for layer, (_, gate) in small.items() if gate.wall - gate.start > MOST_SECONDS]
    dear = [layer for layer, (job, gate) in large.items() if gate.wall - gate.start > MOST_SHARE * job.wall]
    print(f"\ngates above {MOST_SHARE:.0%} of the job on {count:,} transactions: {', '.join(dear) or 'none'}")
    print(f"gates above {MOST_SECONDS:.0f} s on the small batch: {', '.join(slow) or 'none'}")
    return 1 if slow or dear else 0


def measure(home: Path, bootstrap: str, count: int, seed: int) -> dict[str, tuple[Step, Step]]:
    """Send transactions and take them through every layer; returns the job and the gate of each layer, and prints them."""
    disturbances = Disturbances(duplicates=0.01, malformed=0.01, seed=seed)
    assert publish(Broker(bootstrap), plan_messages(generated_sources(count, seed=seed), disturbances)).is_delivered
    taken = {
        name: run(home, bootstrap, name)
        for name in ("bronze --available-now", "silver", "gate bronze", "gate silver", "gold", "gate gold", "release")
    }
    load = ", ".join(f"{number:.1f}" for number in os.getloadavg())
    print(f"\n{count:,} transactions on {os.cpu_count()} cores, load {load}; seconds")
    heads = ("job wall", "job cpu", "gate wall", "gate cpu", "measuring", "judging", "start", "share")
    print("layer  " + "".join(f"{head:>11}" for head in heads))
    layers = {}
    for layer, name in (("bronze", "bronze --available-now"), ("silver", "silver"), ("gold", "gold")):
        job, gate = taken[name], taken[f"gate {layer}"]
        layers[layer] = job, gate
        times = (job.wall, job.cpu, gate.wall, gate.cpu, gate.measuring, gate.judging, gate.start)
        print(f"{layer:7}" + "".join(f"{value:11.1f}" for value in times) + f"{(gate.wall - gate.start) / job.wall:11.1%}", flush=True)
    return layers


def run(home: Path, bootstrap: str, command: str) -> Step:
    """Run a job to its end and that of everything it started."""
    outside = {name: value for name, value in os.environ.items() if not name.startswith("LEDGER_")}
    environment = outside | {"LEDGER_HOME": str(home), "LEDGER_KAFKA_BOOTSTRAP": bootstrap}
    present, before, begun = {child.pid for child in psutil.Process().children()}, _cpu(), time.monotonic()
    words = [sys.executable, "-m", "spark_jobs.run", *command.split()]
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True)
    wall = time.monotonic() - begun
    for child in psutil.Process().children():
        if child.pid not in present:
            os.waitpid(child.pid, 0)
    if done.returncode != 0:
        raise SystemExit(f"{command}: exit code {done.returncode}\n{done.stderr}")
    told = {name: float(found[1]) for name, pattern in _TOOK.items() if (found := pattern.search(done.stderr))}
    return Step(wall, _cpu() - before, **told)


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    sys.exit(main())
