"""The job behind `run backfill`: silver and gold of a range of event times, rebuilt from bronze while the pipeline runs.

The rows of the range are found and judged once, in parallel. Then the tables are updated in steps of days. A step holds the leases of
silver and gold and leaves both consistent; live runs take their turns between two steps. If the process dies, running it again continues
after the last finished step. The next job that writes silver or gold finishes a step that stopped halfway.
"""

import logging
import time
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from pyspark.sql import SparkSession

from spark_jobs import control
from spark_jobs.control import backfills, rule_sets
from spark_jobs.control.backfills import DIMENSIONS, ROWS_A_STEP, TRANSACTIONS, Backfill, Step
from spark_jobs.control.unfinished import Finisher
from spark_jobs.control.verdicts import closed_verdicts
from spark_jobs.gold import job as gold
from spark_jobs.gold.changes import MOST_HELD
from spark_jobs.lake import leases, tables
from spark_jobs.lake.tables import LAYERS, Table
from spark_jobs.lake.topics import EVENTS, TOPICS, VERSIONS
from spark_jobs.lake.versions import rows_written
from spark_jobs.releases import catalogues, gates, releases, rollback
from spark_jobs.reprocessing import reads
from spark_jobs.reprocessing.gold_range import APPLICATION as GOLD_APPLICATION, rebuild_gold
from spark_jobs.reprocessing.silver_range import APPLICATION as SILVER_APPLICATION, Rebuilt, Staged, rebuild_silver, stage
from spark_jobs.runtime import progress, storage
from spark_jobs.runtime.errors import GateClosed, LedgerError
from spark_jobs.runtime.kill_points import kill_point
from spark_jobs.runtime.settings import Settings
from spark_jobs.silver import job as silver, wire_schemas

log = logging.getLogger(__name__)

LEASED = (*tables.SILVER_OWNED, *tables.GOLD)
FOLDER, FOLDER_OF_END = "backfill", "backfill-end"  # of staged rows, below LEDGER_CHECKPOINTS
_LIVE_GATES_SECONDS = 120.0  # then no live run seems to be under way
_PAUSE_SECONDS = 2.0  # ten times what a waiting process takes to notice that a lease is free


@dataclass(frozen=True)
class Request:
    """What is asked for: event times [start, end), tables by name, rows a step, and whether each step is judged and released."""

    start: datetime
    end: datetime
    tables: tuple[str, ...]
    step_rows: int = ROWS_A_STEP
    publish: bool = False

    def asks_for(self, table: Table) -> bool:
        """Whether a table is to be rebuilt."""
        return table.name in self.tables


def run(spark: SparkSession, settings: Settings, request: Request, run_id: str) -> None:
    """Rebuild what is requested (of a run that has asked for it, with its neighbours: backfills.py), or continue the unfinished backfill.

    The caller is the only backfill.

    Raises GateClosed when a step is not judged good: it stays unreleased, and the later ones are not begun. Also where a gate is closed
    for live rows that gold has not taken: then nothing of the step is rebuilt.
    """
    for topic in TOPICS:
        if topic.quarantine.exists(settings):
            wire_schemas.learn(settings, topic, partial(reads.read_table, spark, settings, topic.quarantine))
    rules = {topic.name: rule_sets.present(settings, topic.name).version for topic in TOPICS}
    with rollback.hold(settings, LEASED, owner="backfill"):  # what is done, and the generation that it belongs to
        backfill = backfills.find_or_start(settings, request.start, request.end, request.tables, rules, run_id)
        request = replace(request, start=backfill.start, end=backfill.end)
        done = backfills.steps_done(settings, backfill)
        work = _Work(spark, settings, request, backfill, run_id)
    log.info("%s continues after %s", backfill, done[-1]) if done else log.info("%s begins", backfill)
    asks = any(request.asks_for(topic.silver) for topic in VERSIONS)
    first = [Step(backfill, DIMENSIONS, request.start, request.end)] if asks and DIMENSIONS not in {step.part for step in done} else []
    for topic in EVENTS:
        if request.asks_for(topic.silver) or (topic.name == TRANSACTIONS and any(map(request.asks_for, tables.GOLD))):
            work.rebuild_events(topic.name, max((step.end for step in done if step.part == topic.name), default=request.start), first)
            first = []
    work.rebuild(first)
    if request.publish and not work.published:  # all steps were done by a process that died before it released the last one
        work.take_turn([])
    backfills.finish(settings, backfill, run_id)
    storage.remove(settings.checkpoints / FOLDER)
    log.info("%s is done%s", backfill, "" if request.publish else ": next the DAG medallion, or by hand gate silver, gate gold, release")


def finish_halfway(settings: Settings, by: Finisher) -> None:
    """End the step that a process which died has left halfway, if there is one. Waits for a backfill that is under way."""
    with rollback.hold(settings, LEASED, owner="end of a backfill's step"):
        step = backfills.halfway(settings)
        if step is None:
            return
        log.warning("a %s stopped halfway: its step %s is repeated", step.backfill, step)
        work = _Work(by.session(), settings, Request(step.start, step.end, step.backfill.tables), step.backfill, by.run_id)
        work.do(step, work.stage(step, FOLDER_OF_END))
        storage.remove(settings.checkpoints / FOLDER_OF_END)


class _Work:
    """One process's work on a backfill."""

    def __init__(self, spark: SparkSession, settings: Settings, request: Request, backfill: Backfill, run_id: str) -> None:
        self.spark, self.settings, self.request, self.backfill, self.run_id = spark, settings, request, backfill, run_id
        self.generation, self.published, self.has_had_turn = control.generation(settings), False, False

    def rebuild(self, steps: list[Step]) -> None:
        """Some steps in one turn."""
        while steps and not self.take_turn([(step, self.stage(step, FOLDER)) for step in steps]):
            pass

    def rebuild_events(self, part: str, position: datetime, before: list[Step]) -> None:
        """A topic of events, and with transactions all of gold, from a time on; some steps go before, in the turn of the first one."""
        while position < self.request.end:
            rest = Step(self.backfill, part, position, self.request.end)
            first = [(step, self.stage(step, FOLDER)) for step in before]
            staged = self.stage(rest, FOLDER)
            days = staged[0].days(self.spark) if staged else []
            with progress.phase(self.days_until(position), sum(rows for _, rows in days), "rows") as phase:
                for step in _cut(rest, days, self.request.step_rows):
                    if not self.take_turn([*first, (step, staged)]):
                        break  # the staged rows are out of date: they are staged again, from here on
                    first, before, position = [], [], step.end
                    phase.reach(sum(rows for day, rows in days if day < position), self.days_until(position))
                    log.info("backfill: %s", phase)
        self.rebuild(before)

    def days_until(self, position: datetime) -> str:
        """How many of the range's days lie before a position."""
        start, end = self.request.start, self.request.end
        return f"{_days(start, position)} of {_days(start, end)} days"

    def stage(self, step: Step, folder: str) -> list[Staged]:
        """Find and judge, by the backfill's rules, the rows of a step, of the topics that are asked for."""
        topics = [topic for topic in TOPICS if backfills.part_of(topic) == step.part and self.request.asks_for(topic.silver)]
        root = self.settings.checkpoints / folder
        rules = [rule_sets.recorded(self.settings, topic.name, self.backfill.rules[topic.name]) for topic in topics]
        with progress.phase(f"judging the range's records of {' and '.join(topic.name for topic in topics)}"):
            return [
                stage(self.spark, self.settings, topic, by, step.start, step.end, root / topic.name)
                for topic, by in zip(topics, rules, strict=True)
            ]

    def take_turn(self, steps: list[tuple[Step, list[Staged]]]) -> bool:
        """Do steps under the leases, and let the live flow have its turn; False when the staged rows hold no more."""
        if self.has_had_turn:
            time.sleep(_PAUSE_SECONDS)
        self.has_had_turn = True
        self.await_live_gates()
        with leases.hold(self.settings, LEASED, owner="backfill"):
            if control.generation(self.settings) != self.generation:
                raise LedgerError(
                    f"a roll-back came in between and withdrew what the {self.backfill} did: run it again if it is still wanted"
                )
            self.refuse_other_rules()
            if not all(each.is_fresh(self.settings) for _, staged in steps for each in staged):
                log.info("%s is staged again: corrections came in between", steps[-1][0])
                return False
            if steps:
                silver.finish(self.spark, self.settings, self.run_id)
                self.judge_live_rows()
            for step, staged in steps:
                self.do(step, staged)
            if self.request.publish:
                with progress.phase("judging and releasing"):
                    self.publish()
        return True

    def refuse_other_rules(self) -> None:
        """Raise LedgerError where silver has come to know a schema since the backfill began: it may have judged rows of the range by it."""
        for topic, begun in self.backfill.rules.items():
            if (present := rule_sets.present(self.settings, topic).version) != begun:
                raise LedgerError(
                    f"a schema became known meanwhile: found rules {present!r} of {topic}, expected {begun!r} as when the {self.backfill} "
                    "began: run it again, and it starts anew by these"
                )

    def await_live_gates(self) -> None:
        """Wait, within limits, until the live run's gates have judged what it brought."""
        until = time.monotonic() + _LIVE_GATES_SECONDS
        while self.request.publish and time.monotonic() < until and (layers := gates.unjudged_layers(self.settings)):
            log.info("waiting for the live run's gates of %s", " and ".join(layers))
            time.sleep(_PAUSE_SECONDS)

    def judge_live_rows(self) -> None:
        """Before anything is rebuilt, judge the live batches that no gate has judged yet: gold would take them.

        Raises GateClosed if a gate is closed for live rows. What a backfill itself changed may be repaired by another one.
        """
        of_backfills = backfills.run_ids(self.settings)
        closed = [
            verdict
            for verdict in closed_verdicts(self.settings, "bronze", "silver")
            if gates.is_ahead_of_gold(self.settings, verdict.topic) or (self.request.publish and verdict.run_id not in of_backfills)
        ]
        if closed:
            raise GateClosed(f"nothing of this step was rebuilt: live rows wait for a decision: {gates.closed_line(closed)}")
        if self.request.publish:
            for layer in gates.unjudged_layers(self.settings):
                gates.run(self.settings, layer, self.run_id, limit_seconds=self.settings.gate_seconds, has_lease=True)

    def do(self, step: Step, staged: list[Staged]) -> None:
        """Bring silver and gold to what the staged rows say, and record it."""
        begun = False

        def begin(newest: datetime | None = None) -> None:
            nonlocal begun
            if not begun:
                versions = {table.name: table.open(self.settings).version() for table in LEASED}
                backfills.begin(self.settings, step, self.run_id, versions, newest)
            begun = True

        silver.finish(self.spark, self.settings, self.run_id)
        with progress.phase("rebuilding silver"):
            rebuilt = [rebuild_silver(self.spark, self.settings, each, step.start, step.end, self.run_id, begin) for each in staged]
        with progress.phase("rebuilding gold"):
            gold.run(self.spark, self.settings, self.run_id)
            if step.part == TRANSACTIONS:
                only = [table.name for table in tables.GOLD if self.request.asks_for(table)]
                are_few = sum(each.rows for each in rebuilt) <= MOST_HELD
                rebuild_gold(self.spark, self.settings, step.start, step.end, only, begin, are_few=are_few)
        kill_point("before a step of a backfill is done")
        self.record(step, rebuilt)

    def record(self, step: Step, rebuilt: list[Rebuilt]) -> None:
        """Record and log what a step has done, including what processes that died in it wrote."""
        rows, changed = sum(each.rows for each in rebuilt), dict[Table, int]()
        newest = next((each.newest_event_at for each in rebuilt if each.newest_event_at), None)
        if begun := backfills.begun(self.settings):
            before, newest = begun[0], newest or begun[1]
            own = [control.application(self.settings, name) for name in (SILVER_APPLICATION, GOLD_APPLICATION)]
            found = {table: rows_written(table.path(self.settings), before.get(table.name, 0), own) for table in LEASED}
            changed = {table: count for table, count in found.items() if count is not None}
        backfills.end(
            self.settings,
            step,
            self.run_id,
            rows=rows,
            changed=sum(changed.values()),
            last_batch=control.last_batch(self.settings, "silver", f"silver.{TRANSACTIONS if step.part == DIMENSIONS else step.part}"),
            versions={table.name: table.open(self.settings).version() for table in changed},
            _newest_event_at=newest,
        )
        counts = ", ".join(f"{table.name} {count}" for table, count in changed.items()) or "none"
        log.info("%s: %d rows judged; rows changed: %s", step, rows, counts)

    def publish(self) -> None:
        """Judge what was written, and release it; the leases are held."""
        for layer in LAYERS:
            gates.run(self.settings, layer, self.run_id, limit_seconds=self.settings.gate_seconds, has_lease=True)
        releases.publish(self.settings)
        catalogues.bring_up_to_date(self.settings)
        self.published = True


def _days(start: datetime, end: datetime) -> int:
    return (end - start + timedelta(days=1, microseconds=-1)).days


def _cut(rest: Step, days: list[tuple[datetime, int]], most_rows: int) -> list[Step]:
    """The rest of a range in steps of whole days, of about so many rows. A day is never cut; the last step has up to half as many more."""
    steps, start, rows, left = [], rest.start, 0, sum(count for _, count in days)
    for day, count in days:
        if rows and rows + count > most_rows and rows + left > 1.5 * most_rows and day > start:
            steps.append(Step(rest.backfill, rest.part, start, day))
            start, rows = day, 0
        rows, left = rows + count, left - count
    return [*steps, Step(rest.backfill, rest.part, start, rest.end)]
