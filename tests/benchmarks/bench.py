"""`make bench`: how fast each layer catches up, beside other engines on the same rows, and how that compares with another time.

    python -m tests.benchmarks.bench [--transactions N] [--repeats N] [--warm-ups N] [--only NAME,...] [--json FILE] [--plot FILE]
        [--compare FILE] [--folder DIR]

The rows are the generator's, seed 0: transactions with 5 % duplicates and 5 % malformed copies, customers, accounts. They are in the
topics of one broker. Each run is a process of its own, its start included; the runs take turns, so that other work on the machine hits
all alike. The first turn warms the machine's caches and is not counted. `--compare FILE` compares with an earlier `--json` (`make bench`
writes artifacts/bench.json). No figure passes or fails. Other benchmarks: `python -m tests.benchmarks`.

    bronze        `run bronze --available-now`, all topics
    kafka-noop    Spark: all topics to nothing, the most that it can read
    kafka-delta   Spark: all topics to Delta, as a tutorial writes it
    silver        `run silver` on bronze, all topics
    spark         the same in plain PySpark, as a tutorial writes it, transactions only
    spark-parse   Spark: transactions from Kafka, a bare from_json to Delta
    flink-parse   Flink SQL: transactions from Kafka, JSON to files
    flink-first   Flink SQL: the same, the first of each id only
    duckdb        DuckDB: what silver does, of the transactions in the files of bronze
    gold          `run gold` on what silver made, all tables

What peers leave out is in peers/. Flink and DuckDB run where `.bench` has them (`make bench` installs them there).
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from deltalake import DeltaTable

from include.producer import generated_sources, plan_messages, publish
from include.setup.class_archive import DISTURBANCES
from spark_jobs.lake import tables
from spark_jobs.lake.topics import TOPICS
from spark_jobs.lake.topics.transactions import TOPIC as TRANSACTIONS
from spark_jobs.runtime.kafka_config import Broker
from spark_jobs.runtime.settings import ROOT, read_settings
from tests.benchmarks import report
from tests.benchmarks.cycle import machine
from tests.benchmarks.history import Measured, environment, link_copy, run_command, run_job, run_module, size_of
from tests.benchmarks.peers import flink
from tests.support.brokers import running_broker

DUCKDB = ROOT / ".bench" / "bin" / "python"


@dataclass(frozen=True)
class Run:
    """What is measured: a function of a home and the broker's address. The home has the tables of the layers up to `home`."""

    start: Callable[[Path, str], Measured]
    home: Literal["empty", "bronze", "silver"]
    topics: tuple[str, ...] = tuple(topic.name for topic in TOPICS)


def main() -> None:
    """Run what is asked for; print the table and the plot, and write them down."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.bench")
    parser.add_argument("--transactions", type=int, default=200_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--warm-ups", type=int, default=1, help="turns that are not counted before them (default: 1)")
    parser.add_argument("--only", default=",".join(RUNS), help="some of: %(default)s")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--plot", type=Path, help="where to write the plot, as SVG")
    parser.add_argument("--compare", type=Path, help="figures of another time")
    parser.add_argument("--folder", type=Path, help="where the topics and bronze stay for the next time")
    options = parser.parse_args()
    if options.repeats < 1:
        parser.error(f"--repeats: found {options.repeats}, expected at least 1: nothing would be counted")
    names = options.only.split(",")
    if unknown := [name for name in names if name not in RUNS]:
        parser.error(f"--only: found {', '.join(unknown)}, expected some of {', '.join(RUNS)}")
    names = [name for name in names if is_there(name)]
    before = json.loads(options.compare.read_text(encoding="utf-8")) if options.compare else None
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.folder or Path(temporary)) / f"bench-{options.transactions}"
        with filled_broker(folder, options.transactions) as (bootstrap, rows):
            found = {"machine": machine(), "transactions": options.transactions, "rows": sum(rows.values()), "repeats": options.repeats}
            found["rows_read"] = {name: sum(rows[topic] for topic in RUNS[name].topics) for name in names}
            homes = Homes(folder / "bronze", Path(temporary), bootstrap)
            found |= measure(homes, {name: RUNS[name] for name in names}, options.warm_ups, options.repeats)
    report.report(found, before)
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    if options.plot:
        options.plot.write_text(report.plot(found), encoding="utf-8")


def is_there(name: str) -> bool:
    """Whether the engine of a run is installed."""
    engine = name.partition("-")[0]
    return (engine != "duckdb" or DUCKDB.exists()) and (engine != "flink" or flink.find_flink() is not None)


@contextmanager
def filled_broker(folder: Path, transactions: int) -> Iterator[tuple[str, dict[str, int]]]:
    """The address of a broker that has the generated rows, and their number by topic. They are sent once."""
    counts = folder / "rows.json"
    if not counts.exists():
        shutil.rmtree(folder, ignore_errors=True)
    broker = folder / "broker"
    broker.mkdir(parents=True, exist_ok=True)
    with running_broker(broker) as bootstrap:
        if not counts.exists():
            begun = time.monotonic()
            sent = publish(Broker(bootstrap), plan_messages(generated_sources(transactions, seed=0), DISTURBANCES))
            assert sent.is_delivered
            rows = {topic.name: sum(number for (name, _), number in sent.sent.items() if name == topic.name) for topic in TOPICS}
            counts.write_text(json.dumps(rows), encoding="utf-8")
            say(f"{sum(rows.values()):,} records sent", time.monotonic() - begun)
        yield bootstrap, json.loads(counts.read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Homes:
    """What runs start from: `bronze` is made once, and kept; silver is made once in the temporary folder."""

    bronze: Path
    temporary: Path
    bootstrap: str

    def copy_for(self, run: Run) -> Path:
        """A new home with what a run reads."""
        copy = self.temporary / "run"
        if run.home == "empty":
            copy.mkdir()
        else:
            link_copy(self._silver() if run.home == "silver" else self._bronze(), copy)
        return copy

    def _bronze(self) -> Path:
        if not (self.bronze / "done").exists():
            shutil.rmtree(self.bronze, ignore_errors=True)
            self.bronze.mkdir()
            say("bronze made", run_bronze(self.bronze, self.bootstrap).seconds)
            (self.bronze / "done").touch()
        return self.bronze

    def _silver(self) -> Path:
        silver = self.temporary / "silver"
        if not silver.exists():
            link_copy(self._bronze(), silver)
            say("silver made", run_job("silver", silver).seconds)
        return silver


def measure(homes: Homes, chosen: Mapping[str, Run], warm_ups: int, repeats: int) -> dict[str, Any]:
    """The counted runs by name, which take turns, and the bytes that the tables of each layer have behind them."""
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in chosen}
    stored: dict[str, int] = {}
    for turn in range(1 - warm_ups, repeats + 1):
        for name, run in chosen.items():
            copy = homes.copy_for(run)
            measured = run.start(copy, homes.bootstrap)
            if name in tables.LAYERS:
                settings = read_settings(environment(copy))
                stored[name] = sum(size_of(settings, table) for table in tables.LAYERS[name])
            shutil.rmtree(copy)
            say(f"turn {turn} of {repeats}, {name}", measured.seconds)
            if turn > 0:
                runs[name].append(asdict(measured))
    return {"runs": runs, "stored": stored}


def say(what: str, seconds: float) -> None:
    """How far the benchmark is."""
    print(f"{what}: {seconds:.1f} s, load {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)


def run_bronze(home: Path, bootstrap: str) -> Measured:
    """The ingestion, of all that a broker has."""
    command = ["env", f"LEDGER_KAFKA_BOOTSTRAP={bootstrap}", sys.executable, "-m", "spark_jobs.run", "bronze", "--available-now"]
    return run_command(command, home)


def run_duckdb(home: Path, _: str) -> Measured:
    """DuckDB, on the files of bronze."""
    bronze = DeltaTable(str(tables.BRONZE_TRANSACTIONS.path(read_settings(environment(home)))))
    return run_command([str(DUCKDB), str(ROOT / "tests" / "benchmarks" / "peers" / "duck.py"), str(home), *bronze.file_uris()], home)


def run_spark(what: str) -> Callable[[Path, str], Measured]:
    """Plain PySpark."""
    return lambda home, bootstrap: run_module(["tests.benchmarks.peers.plain_spark", what, str(home), bootstrap], home)


def run_flink(query: str) -> Callable[[Path, str], Measured]:
    """Flink SQL."""

    def start(home: Path, bootstrap: str) -> Measured:
        found = flink.find_flink()
        assert found
        measured = run_command(flink.plan_command(found, home, bootstrap, query), home)
        flink.check_written(home)
        return measured

    return start


RUNS: dict[str, Run] = {
    "bronze": Run(run_bronze, "empty"),
    "kafka-noop": Run(run_spark("noop"), "empty"),
    "kafka-delta": Run(run_spark("delta"), "empty"),
    "silver": Run(lambda home, _: run_job("silver", home), "bronze"),
    "spark": Run(run_spark("silver"), "bronze", (TRANSACTIONS.name,)),
    "spark-parse": Run(run_spark("parse"), "empty", (TRANSACTIONS.name,)),
    "flink-parse": Run(run_flink(flink.PARSED), "empty", (TRANSACTIONS.name,)),
    "flink-first": Run(run_flink(flink.FIRST), "empty", (TRANSACTIONS.name,)),
    "duckdb": Run(run_duckdb, "bronze", (TRANSACTIONS.name,)),
    "gold": Run(lambda home, _: run_job("gold", home), "silver"),
}


if __name__ == "__main__":
    main()
