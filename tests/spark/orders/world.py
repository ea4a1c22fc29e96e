"""A small lake, and the commands that change it: each runs the function behind a job of spark_jobs/run.py, in this process."""

import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from spark_jobs import control, run
from spark_jobs.bronze import additions
from spark_jobs.control import redrives, verdicts
from spark_jobs.lake import leases, tables
from spark_jobs.lake.topics import TOPICS as SILVER_TOPICS
from spark_jobs.releases import releases
from spark_jobs.runtime import times
from spark_jobs.runtime.errors import GateClosed, LedgerError, SettingsError
from spark_jobs.runtime.settings import Settings
from tests.conftest import SMALL_FRAMES
from tests.spark.orders import checks, records
from tests.spark.orders.calls import Call, parse
from tests.spark.orders.judge import Judge
from tests.spark.orders.records import MINUTES, TOPICS, Kafka
from tests.spark.orders.stage import Actor, Stage
from tests.support import lake, oracle
from tests.support.aging import age
from tests.support.redrive_cases import MINUTE, START, write_rules

BACKFILL_ROWS_A_STEP = 15
_EVENT_TIMES = ("_newest_event_at", "range_start", "range_end", "step_start", "step_end")  # of control tables: no time of ours
_HALFWAY = ("stopped halfway", "a roll-back came in between", "found no answer")  # refusals that ask for another command


class Wrong(AssertionError):
    """Something does not hold; the message tells the commands that led to it."""


@dataclass
class World:
    """A lake, what Kafka holds for it, and the commands so far with what became of each."""

    spark: SparkSession
    stage: Stage
    settings: Settings
    rules: Path
    chance: random.Random
    source: Kafka | None = None
    version: str = "old"
    told: list[str] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)
    judge: Judge = field(default_factory=Judge)
    runs: int = 0

    def __post_init__(self) -> None:
        self.kafka = self.source or Kafka()
        self.put_rules(self.version)

    # What a test calls.

    def play(self, *lines: str, may_refuse: bool = False) -> None:
        """Run commands one after the other; raises Wrong as soon as something does not hold.

        A job may refuse to run where `may_refuse` says so, or its line ends with a question mark.
        """
        for line in lines:
            try:
                outcomes = self._run(line.removesuffix(" ?"))
                refused = [outcome for outcome in outcomes if outcome.startswith("refused")]
                assert may_refuse or line.endswith(" ?") or not refused, f"{line}: {refused[0]}"
            except AssertionError as error:
                raise Wrong(f"{self.history()}\n{error}") from error

    def history(self) -> str:
        """The commands so far, each with what became of it."""
        return "\n".join(["commands:", *self.told])

    # One line.

    def _run(self, line: str) -> list[str]:
        calls = parse(line)
        self.told.append(f"  {line}")
        if len(calls) == 1 and calls[0].words[0] in self._own:
            self._own[calls[0].words[0]](*calls[0].words[1:])
            return ["done"]
        before = verdicts.newest_verdicts(self.settings)
        actors = [Actor(self._work(call.words), self._session(number), call.dies_at, call.yields_at) for number, call in enumerate(calls)]
        self.stage.play(*actors)
        outcomes = [self._outcome(actor, call.words[0]) for actor, call in zip(actors, calls, strict=True)]
        for actor, call in zip(actors, calls, strict=True):
            named = {point for point in (call.dies_at, call.yields_at) if isinstance(point, str)}
            assert named <= {*actor.reached}, f"{line}: never came to {named - {*actor.reached}}, but to {actor.reached}"
        self.told[-1] += f"  -> {'; '.join(outcomes)}"
        for call, outcome in zip(calls, outcomes, strict=True):
            self._note(call, outcome)
            if outcome == "done" and len(calls) == 1:
                self._check(call, before)
        return outcomes

    def _session(self, number: int) -> SparkSession:
        """A process of its own has a session of its own."""
        if number == 0:
            return self.spark
        session = self.spark.newSession()
        for name, value in SMALL_FRAMES.items():
            session.conf.set(name, value)
        return session

    def _outcome(self, actor: Actor, job: str) -> str:
        if actor.died_at:
            return f"died at {actor.died_at}"
        if actor.error is None:
            return "done"
        message = f"{type(actor.error).__name__}: {actor.error}"
        is_of_query = any(part in message for part in (" stopped: ", "failed: ")) and not any(part in message for part in _HALFWAY)
        is_unusable = isinstance(actor.error, SettingsError) and job != "redrive"  # whose rule may not be known yet
        if not isinstance(actor.error, LedgerError) or is_of_query or is_unusable:
            raise AssertionError(message) from actor.error
        return f"refused ({message})"

    def _note(self, call: Call, outcome: str) -> None:
        """Keep in mind what must be repeated before others can go on."""
        text = " ".join(call.words)
        if call.words[0] in ("redrive", "backfill"):
            if outcome.startswith("died") and text not in self.unfinished:
                self.unfinished.append(text)
            elif outcome == "done" and text in self.unfinished:
                self.unfinished.remove(text)

    def _check(self, call: Call, before: dict[str, verdicts.Verdict]) -> None:
        """What must hold just after a command that ended well."""
        if call.words[0] == "release" or "publish" in call.words:
            checks.check_release(self.settings, releases.newest_release(self.settings))
        if call.words[0] == "backfill":
            checks.check_range(self.settings, self.version, *_minutes(call.words), _tables(call.words))
        if call.words[:2] == ("gate", "silver"):
            checks.check_gate(self.settings, before, verdicts.newest_verdicts(self.settings))

    # The commands.

    @property
    def _own(self) -> dict[str, Callable[..., None]]:
        return {
            "produce": self._produce,
            "days": self._days,
            "rules": self.put_rules,
            "copy": self._copy,
            "restore": self._restore,
            "rest": self._rest,
            "check": self._check_now,
        }

    def _work(self, words: tuple[str, ...]) -> Callable[[], None]:
        name, *rest = words
        self.runs += 1
        if name == "bronze":
            return lambda: self._bronze(*(rest or TOPICS))
        options = {
            "gate": rest[:1],
            "decide": [*rest, "--who", "Ada", "--why", "a test"],
            "redrive": ["--rule", *rest],
            "backfill": _backfill_options(rest),
            "maintenance": ["--wait", "0", *(["--tables", *rest] if rest else [])],
        }.get(name, rest)
        parsed = run.parse_arguments(["--run-id", f"{name}-{self.runs}", name, *options])

        def work() -> None:
            self.judge.is_closed = "closed" in rest
            run.JOBS[name](self.settings, parsed)

        return work

    def _produce(self, *topics: str) -> None:
        for topic in topics or TOPICS:
            self.kafka.produce(topic, self.chance)

    def _bronze(self, *topics: str) -> None:
        """One batch of each topic of all that bronze lacks."""
        for topic in topics:
            table = lake.BRONZE[topic]
            with leases.hold(self.settings, [table], owner="bronze"):
                tables.ensure_tables(self.settings, tables.BRONZE)
                held = {records.place(row) for row in lake.rows_of(self.settings, table)}
                new = [row for row in self.kafka.records[topic] if records.place(row) not in held]
                with additions.open_spool(self.settings, table) as spool:
                    for row in new:
                        spool.add(row | {"headers": None, "_timestamp": lake.LOADED_AT, "_batch": None})
                    additions.append(self.settings, table, spool, "orders")

    def _days(self, days: str) -> None:
        """Everything that happened so far happened so many days earlier."""
        for table in tables.CONTROL:
            path = str(table.path(self.settings))
            fields = zip(table.columns, table.delta_schema().fields, strict=True)
            times = [name for name, each in fields if "timestamp" in str(each.type) and name not in _EVENT_TIMES]
            if times and DeltaTable.is_deltatable(path) and (rows := control.read(self.settings, table)).num_rows:
                earlier = [row | {name: row[name] and row[name] - timedelta(days=int(days)) for name in times} for row in rows.to_pylist()]
                write_deltalake(path, pa.Table.from_pylist(earlier, rows.schema), mode="overwrite")
        for table in tables.EVERY:
            log = table.path(self.settings) / "_delta_log"
            if (log / f"{0:020}.json").exists():  # all is in the commits, whose times can be changed
                for file in (*log.glob("*.checkpoint*"), log / "_last_checkpoint"):
                    file.unlink(missing_ok=True)
            if log.exists():
                age(self.settings, table, int(days))
        self._forget()

    def _check_now(self, *layers: str) -> None:
        """Everything, or only what silver or gold holds."""
        if "silver" in layers:
            checks.check_batches(self.settings)
            checks.check_silver(self.settings)
        if "gold" in layers:
            checks.check_gold(self.settings)
        if not layers:
            checks.check_at_rest(self.settings, self.kafka)

    def put_rules(self, version: str) -> None:
        """The rule files of this version are in force from now on."""
        self.version = version
        write_rules(self.rules, older=version == "old")

    def _copy(self) -> None:
        shutil.rmtree(self._saved, ignore_errors=True)
        shutil.copytree(self.settings.warehouse, self._saved)

    def _restore(self) -> None:
        """The warehouse is what it was when it was copied; the checkpoints are those of now."""
        if self._saved.exists():
            shutil.rmtree(self.settings.warehouse)
            shutil.copytree(self._saved, self.settings.warehouse)
            self.unfinished = []
            self._forget()

    @property
    def _saved(self) -> Path:
        return self.settings.home / "saved"

    def _forget(self) -> None:
        """What Spark remembers of tables' logs holds no more."""
        jvm: Any = self.spark._jvm
        jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()

    def _rest(self, upto: str = "release") -> None:
        """Take in and release all there is, or only bring silver up to it, without a death; a gate that closes is overruled."""
        self._finish("bronze")
        for topic in SILVER_TOPICS:
            if topic in redrives.halfway(self.settings):
                self._finish(next(line for line in reversed(self.unfinished) if line.startswith("redrive")))
        lines = ("silver", "gate bronze", "gate silver", "gold", "gate gold", "release")
        for line in lines[: lines.index(upto) + 1]:
            self._finish(line)

    def _finish(self, line: str) -> None:
        (outcome,) = self._run(line)
        if GateClosed.__name__ in outcome:
            self._run("decide release-anyway")
            (outcome,) = self._run(line) if not line.startswith("gate") else ("done",)
        assert outcome == "done", f"{line}: found {outcome}"


def _minutes(words: Sequence[str]) -> tuple[int, int]:
    first, last, *_ = [*(int(word) for word in words if word.isdigit()), 0, MINUTES]
    return first, last


def _tables(words: Sequence[str]) -> list[str]:
    return [word for word in words if "." in word] or [*tables.REBUILT]


def _backfill_options(words: Sequence[str]) -> list[str]:
    first, last = (times.to_text(oracle.at(START + minute * MINUTE)) for minute in _minutes(words))
    publish = ["--publish"] if "publish" in words else []
    return ["--start", first, "--end", last, "--step-rows", str(BACKFILL_ROWS_A_STEP), *publish, "--tables", *_tables(words)]
