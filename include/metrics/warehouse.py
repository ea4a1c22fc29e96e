"""Series of the tables and of what the control tables say. Each is read again only when a table that it is made of has a new version."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from include.metrics.series import Sample
from include.quality_page import quarantine
from include.quality_page.current import held_back, newest_release, newest_verdicts, read_decisions
from include.quality_page.reading import Warehouse
from spark_jobs import control
from spark_jobs.control.scope import newest_batch
from spark_jobs.control.verdicts import WAIT, Verdict
from spark_jobs.lake.log_files import newest_version
from spark_jobs.lake.snapshots import commit_file
from spark_jobs.lake.tables import BATCHES, BRONZE, DECISIONS, EVERY, LAYERS, QUALITY_RESULTS, RELEASES, Table
from spark_jobs.lake.topics import TOPICS
from spark_jobs.releases.releases import latest_release, unreleased_since
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.settings import Settings

GATE_STATES = ("passed", "warned", "overruled", "closed", "waiting")
_OUTCOMES = ("input", "output", "duplicates", "quarantined", "superseded", "no_change")
_RUNS = """select job, "table" as name, count(*) as runs, sum(input) as input, sum(output) as output, sum(duplicates) as duplicates,
    sum(quarantined) as quarantined, sum(superseded) as superseded, sum(no_change) as no_change from t group by job, "table" """
_VERDICTS = "select layer, success, count(*) as n from t group by layer, success"

Read = Callable[[Settings], Iterable[Sample]]


@dataclass
class Cache:
    """What was read of a home, with the versions of the tables that it was made of."""

    settings: Settings
    found: dict[object, tuple[tuple[int, ...], list[Sample]]] = field(default_factory=dict)

    def get(self, key: object, made_of: Sequence[Table], read: Read) -> list[Sample]:
        """The samples of `key`; `read` where a version has changed since. What it raises is not kept."""
        versions = tuple(newest_version(table.path(self.settings)) for table in made_of)
        known = self.found.get(key)
        if known is None or known[0] != versions:
            known = versions, list(read(self.settings))
            self.found[key] = known
        return known[1]


def read_tables(cache: Cache) -> Iterator[Sample]:
    """Rows, files, bytes and version of every table that exists."""
    for table in EVERY:
        yield from cache.get(("table", table), [table], partial(_table, table=table))


def read_batches(cache: Cache) -> Iterator[Sample]:
    """What the runs on record took and made of it, and how far each layer has come."""
    yield from cache.get("runs", [BATCHES], _runs)
    for table in BRONZE:
        yield from cache.get(("bronze", table), [table], partial(_bronze_batch, table=table))
    yield from cache.get("silver", [BATCHES], _silver_batches)
    yield from cache.get("released", [RELEASES], _released_batches)


def read_releases(cache: Cache) -> Iterator[Sample]:
    """The newest release, and what it lacks."""
    yield "ledger_release_stale_after_seconds", (), cache.settings.release_stale_minutes * 60.0
    yield from cache.get("release", [RELEASES, BATCHES], _release)
    yield from cache.get("unreleased", [RELEASES, *BRONZE], _unreleased)


def read_gates(cache: Cache) -> Iterator[Sample]:
    """What the gates said."""
    yield from cache.get("gates", [QUALITY_RESULTS, DECISIONS], _gates)


def read_quarantine(cache: Cache) -> Iterator[Sample]:
    """Rows in quarantine by rule, and late ones."""
    for topic in TOPICS:
        yield from cache.get(("broken", topic.quarantine), [topic.quarantine], partial(_broken, table=topic.quarantine))
        if not topic.has_versions:
            yield from cache.get(("late", topic.late), [topic.late], partial(_late, table=topic.late))


def _table(settings: Settings, table: Table) -> Iterator[Sample]:
    path = table.path(settings)
    version = newest_version(path)
    if version < 0:
        return
    delta = table.open(settings, version)
    files = pa.table(delta.get_add_actions(flatten=True)).select(["size_bytes", "num_records"]).to_pylist()
    rows = control.count(delta) if table.deletion_vectors else sum(file["num_records"] or 0 for file in files)
    labels = (table.name,)
    yield "ledger_table_rows", labels, float(rows)
    yield "ledger_table_files", labels, float(len(files))
    yield "ledger_table_bytes", labels, float(sum(file["size_bytes"] for file in files))
    yield "ledger_table_version", labels, float(version)
    yield "ledger_table_commit_timestamp_seconds", labels, commit_file(path, version).stat().st_mtime


def _runs(settings: Settings) -> Iterator[Sample]:
    with _reading(settings) as warehouse:
        rows = warehouse.select(BATCHES, _RUNS)
    for row in rows:
        labels = (str(row["job"]), str(row["name"]))
        yield "ledger_runs_total", labels, float(row["runs"])
        for outcome in _OUTCOMES:
            if row[outcome] is not None:
                yield "ledger_rows_total", (*labels, outcome), float(row[outcome])


def _bronze_batch(settings: Settings, table: Table) -> Iterator[Sample]:
    if table.exists(settings):
        yield "ledger_batch", (table.topic, "bronze"), float(newest_batch(settings, table) or 0)


def _silver_batches(settings: Settings) -> Iterator[Sample]:
    for topic, batch in control.silver_batches(settings).items():
        yield "ledger_batch", (topic, "silver"), float(batch)


def _released_batches(settings: Settings) -> Iterator[Sample]:
    release = latest_release(settings)
    for table in BRONZE:
        yield "ledger_batch", (table.topic, "release"), float(release.last_batches.get(table.name, 0) if release else 0)


def _release(settings: Settings) -> Iterator[Sample]:
    with _reading(settings) as warehouse:
        release = newest_release(warehouse)
    yield "ledger_release", (), float(release.number if release else 0)
    if release:
        yield "ledger_release_timestamp_seconds", (), release.at.timestamp()
        for name, rows in release.rows.items():
            yield "ledger_release_table_rows", (name,), float(rows)
        named = latest_release(settings)
        for name, version in named.versions.items() if named else ():
            yield "ledger_release_table_version", (name,), float(version)
        if release.newest_event_at:
            yield "ledger_release_newest_event_timestamp_seconds", (), release.newest_event_at.timestamp()


def _unreleased(settings: Settings) -> Iterator[Sample]:
    with _reading(settings) as warehouse:
        held = held_back(warehouse, newest_release(warehouse))
    for topic, rows in held.items():
        yield "ledger_unreleased_rows", (topic,), float(rows)
    if since := unreleased_since(settings):
        yield "ledger_unreleased_since_timestamp_seconds", (), since.timestamp()


def _gates(settings: Settings) -> Iterator[Sample]:
    with _reading(settings) as warehouse:
        newest = newest_verdicts(warehouse, read_decisions(warehouse))
        counted = warehouse.select(QUALITY_RESULTS, _VERDICTS)
    states = Counter((verdict.layer, _state(verdict)) for verdict in newest)
    on_record = {(row["layer"], bool(row["success"])): row["n"] for row in counted}
    for layer in LAYERS:
        for state in GATE_STATES:
            yield "ledger_gate_tables", (layer, state), float(states[layer, state])
        for outcome, success in (("passed", True), ("failed", False)):
            yield "ledger_gate_verdicts", (layer, outcome), float(on_record.get((layer, success), 0))
    for verdict in newest:
        labels = (verdict.layer, verdict.table)
        yield "ledger_gate_closed", labels, float(not verdict.passed)
        yield "ledger_gate_findings", labels, float(len(verdict.findings))
        yield "ledger_gate_judged_timestamp_seconds", labels, verdict.judged_at.timestamp()


def _state(verdict: Verdict) -> str:
    """One of GATE_STATES."""
    is_waiting = not verdict.passed and verdict.decision is not None and verdict.decision.choice == WAIT
    return "waiting" if is_waiting else verdict.state


def _broken(settings: Settings, table: Table) -> Iterator[Sample]:
    with _reading(settings) as warehouse:
        rules = quarantine.groups(warehouse, table, quarantine.Filter(), "rule")
    for rule, rows in rules.items():
        yield "ledger_quarantine_rows", (table.topic, rule), float(rows)


def _late(settings: Settings, table: Table) -> Iterator[Sample]:
    if table.exists(settings):
        yield "ledger_late_rows", (table.topic,), float(control.count(table.open(settings)))


@contextmanager
def _reading(settings: Settings) -> Iterator[Warehouse]:
    """The page's reader; raises LedgerError afterwards where it could not read all."""
    warehouse = Warehouse(settings)
    yield warehouse
    if warehouse.problems:
        raise LedgerError("; ".join(warehouse.problems))
