"""`make bench`: how fast each layer catches up, beside other engines on the same rows, and how that compares with another time.

    python -m tests.benchmarks.bench [--transactions N] [--repeats N] [--only NAME,...] [--json FILE] [--compare FILE] [--folder DIR]

The rows are the generator's, seed 0: transactions with 5 % duplicates and 5 % malformed copies, customers, accounts.
Each run is a process of its own, its start included, on a copy of the same files; the runs take turns, so that other work on the machine
hits all alike. The first turn warms the machine's caches and is not counted. A ratio is the median to the one of `spark`, the peer; with
`--compare FILE` also to that in FILE, which an earlier `--json` wrote (`make bench` writes artifacts/bench.json). No figure passes or
fails. Other benchmarks: `python -m tests.benchmarks`.

bronze: `run bronze --available-now` from a broker of its own, which has them all. silver, gold: `run silver` on bronze filled without a
broker, and `run gold` on what silver made. spark: plain PySpark, as a tutorial writes it. duckdb: DuckDB, where
tests/benchmarks/peers/requirements.txt is installed in the environment `.bench` (`make bench` does it). What peers leave out: peers/.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from include.producer import generated_sources, plan_messages, publish
from include.setup.class_archive import DISTURBANCES, fill_bronze
from spark_jobs.lake import tables
from spark_jobs.runtime.kafka_config import Broker
from spark_jobs.runtime.settings import ROOT, read_settings
from tests.benchmarks.cycle import machine
from tests.benchmarks.history import Measured, environment, link_copy, median, run_command, run_job, run_module, size_of
from tests.support.brokers import running_broker

DUCKDB = ROOT / ".bench" / "bin" / "python"
PEER = "spark"
_WIDTH = 40  # characters of the longest bar


def main() -> None:
    """Run what is asked for, and print the table and the plot."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.bench")
    parser.add_argument("--transactions", type=int, default=200_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", default=",".join(("bronze", *RUNS)), help="some of: %(default)s")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--compare", type=Path, help="figures of another time")
    parser.add_argument("--folder", type=Path, help="where bronze stays for the next time")
    options = parser.parse_args()
    names = [name for name in options.only.split(",") if name != "duckdb" or DUCKDB.exists()]
    before = json.loads(options.compare.read_text(encoding="utf-8")) if options.compare else None
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as stack:
        home = (options.folder or Path(temporary)) / f"bronze-{options.transactions}"
        rows = make_bronze(home, options.transactions)
        found = {"machine": machine(), "transactions": options.transactions, "rows": rows, "repeats": options.repeats}
        every = dict(RUNS)
        if "bronze" in names:
            bootstrap = stack.enter_context(filled_broker(Path(temporary) / "broker", options.transactions))
            every["bronze"] = partial(run_bronze, bootstrap)
        found |= measure(home, Path(temporary), {name: every[name] for name in names}, options.repeats)
    report(found, before)
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


def make_bronze(home: Path, transactions: int) -> int:
    """Bronze of so many transactions, made once; returns its rows."""
    if not (home / "rows").exists():
        shutil.rmtree(home, ignore_errors=True)
        rows = fill_bronze(read_settings(environment(home)), transactions)
        (home / "rows").write_text(str(rows), encoding="utf-8")
    return int((home / "rows").read_text(encoding="utf-8"))


@contextmanager
def filled_broker(folder: Path, transactions: int) -> Iterator[str]:
    """The address of a broker that has the rows of bronze."""
    with running_broker(folder) as bootstrap:
        messages = plan_messages(generated_sources(transactions, seed=0), DISTURBANCES)
        assert publish(Broker(bootstrap), messages).is_delivered
        yield bootstrap


def measure(home: Path, folder: Path, run: Mapping[str, Callable[[Path], Measured]], repeats: int) -> dict[str, Any]:
    """The counted runs by name, which take turns, and the bytes that the tables of each layer have behind them."""
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in run}
    stored: dict[str, int] = {}
    silver, copy = folder / "silver", folder / "run"
    for turn in range(repeats + 1):
        for name in runs:
            if name == "gold" and not silver.exists():  # what gold reads is made once
                link_copy(home, silver)
                run_job("silver", silver)
            if name == "bronze":
                copy.mkdir()
            else:
                link_copy(silver if name == "gold" else home, copy)
            measured = run[name](copy)
            if name in tables.LAYERS:
                settings = read_settings(environment(copy))
                stored[name] = sum(size_of(settings, table) for table in tables.LAYERS[name])
            shutil.rmtree(copy)
            print(f"turn {turn} of {repeats}, {name}: {measured.seconds:.1f} s, load {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)
            if turn:
                runs[name].append(asdict(measured))
    return {"runs": runs, "stored": stored}


def run_bronze(bootstrap: str, home: Path) -> Measured:
    """The ingestion, of all that a broker has."""
    command = ["env", f"LEDGER_KAFKA_BOOTSTRAP={bootstrap}", sys.executable, "-m", "spark_jobs.run", "bronze", "--available-now"]
    return run_command(command, home)


def run_duckdb(home: Path) -> Measured:
    """DuckDB, on the files of bronze."""
    bronze = DeltaTable(str(tables.BRONZE_TRANSACTIONS.path(read_settings(environment(home)))))
    return run_command([str(DUCKDB), str(ROOT / "tests" / "benchmarks" / "peers" / "duck.py"), str(home), *bronze.file_uris()], home)


RUNS: dict[str, Callable[[Path], Measured]] = {
    "silver": lambda home: run_job("silver", home),
    "gold": lambda home: run_job("gold", home),
    PEER: lambda home: run_module(["tests.benchmarks.peers.plain_spark", str(home)], home),
    "duckdb": run_duckdb,
}


def medians(found: Mapping[str, Any]) -> dict[str, Measured]:
    """The median of each measure, by name."""
    return {name: median([Measured(**run) for run in runs]) for name, runs in found["runs"].items()}


def report(found: Mapping[str, Any], before: Mapping[str, Any] | None) -> None:
    """Print the medians and ratios, and bars of the rows a second."""
    middles, earlier = medians(found), medians(before) if before else {}
    print(f"\n{found['rows']:,} bronze rows; medians of {found['repeats']} runs in turns; {found['machine']}")
    print(f"{'':8} {'seconds':>8} {'least':>7} {'most':>7} {'cpu s':>7} {'rows/s':>9} {'to spark':>9} {'cpu':>6}", end="")
    print(f" {'peak MB':>8} {'read MB':>8} {'written':>8}" + (f" {'then s':>8} {'ratio':>6} {'cpu':>6}" if before else ""))
    peer = middles.get(PEER)
    for name, middle in middles.items():
        seconds = [run["seconds"] for run in found["runs"][name]]
        line = f"{name:8} {middle.seconds:8.1f} {min(seconds):7.1f} {max(seconds):7.1f} {middle.processor:7.1f}"
        line += f" {found['rows'] / middle.seconds:9,.0f} {ratio(middle, peer)}"
        line += f" {middle.memory / 1e6:8,.0f} {middle.bytes_read / 1e6:8,.0f} {middle.bytes_written / 1e6:8,.0f}"
        print(line + (f" {earlier[name].seconds:8.1f} {ratio(middle, earlier[name])}" if name in earlier else ""))
    most = max((found["rows"] / middle.seconds for middle in middles.values()), default=1.0)
    print("\nrows a second")
    for name, middle in middles.items():
        speed = found["rows"] / middle.seconds
        print(f"{name:8} {'#' * max(1, round(_WIDTH * speed / most))} {speed:,.0f}")


def ratio(one: Measured, other: Measured | None) -> str:
    """How many times as long one takes as the other, and how much processor time."""
    return f"{one.seconds / other.seconds:9.2f} {one.processor / other.processor:6.2f}" if other else f"{'':9} {'':6}"


if __name__ == "__main__":
    main()
