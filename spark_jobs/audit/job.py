"""The job behind `run audit`: recomputes silver and gold from bronze and compares them with the stored rows, table by table.

Reads pinned versions and holds no table's lease meanwhile, so the pipeline continues. Writes its result only, to control.audits.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from time import monotonic

from pyspark.sql import DataFrame, SparkSession

from spark_jobs import control
from spark_jobs.audit import queries, snapshot
from spark_jobs.audit.compare import Comparison, compare
from spark_jobs.audit.judged import judged_rows, read
from spark_jobs.audit.silver import tables_of
from spark_jobs.audit.snapshot import Snapshot
from spark_jobs.lake.kept import kept
from spark_jobs.lake.tables import AUDITS, BRONZE, BY_NAME
from spark_jobs.lake.topics import EVENTS, VERSIONS
from spark_jobs.runtime import progress
from spark_jobs.runtime.errors import AuditDifference
from spark_jobs.runtime.settings import Settings
from spark_jobs.runtime.text import print_masked

Expected = Iterator[tuple[str, DataFrame]]


def run(spark: SparkSession, settings: Settings, audited: Snapshot, run_id: str) -> None:
    """Audit every table of silver, and of gold if it ever ran: prints a line for each, with some differing rows, and records it.

    Raises AuditDifference, which names the tables and the first row, where any differs.
    """
    begun, at = monotonic(), datetime.now(UTC)
    print_masked(_head(audited))
    compared: dict[str, Comparison] = {}
    rows = []
    with progress.phase("judging bronze", len(audited.tables), "tables") as phase:
        for name, expected in _expected(spark, settings, audited):
            phase.reach(len(compared), f"comparing {name}")
            if name not in audited.tables:
                print_masked(f"{name}: release {audited.release and audited.release.release_id} has no such table, not compared")
                continue
            since, pinned = monotonic(), audited.tables[name]
            found = compared[name] = compare(spark, BY_NAME[name], expected, read(spark, pinned))
            seconds = monotonic() - since
            kinds = f" ({found.missing} missing, {found.unexpected} unexpected)" if found.differences else ""
            print_masked(f"{name}: {found.rows} rows, {found.differences} differences{kinds}, {seconds:.1f} s")
            for example in found.examples:
                print_masked(f"  {example}")
            facts = {"table": name, "version": pinned.version, "rows": found.rows, "missing": found.missing, "unexpected": found.unexpected}
            facts |= {"examples": list(found.examples), "seconds": Decimal(f"{seconds:.3f}"), "audited_at": at}
            rows.append(facts | {"run_id": run_id, "release_id": audited.release.release_id if audited.release else None})
    control.append(settings, AUDITS, rows)
    print_masked(f"{len(compared)} tables, {sum(each.rows for each in compared.values())} rows in {monotonic() - begun:.1f} s")
    if different := {name: each for name, each in compared.items() if each.differences}:
        raise AuditDifference(_message(different, audited))


def _expected(spark: SparkSession, settings: Settings, audited: Snapshot) -> Expected:
    """Every table by name as it should be, silver first. Gold is computed from the silver computed here, if gold has read exactly that."""
    made: dict[str, DataFrame] = {}
    for topic in (*VERSIONS, *EVENTS):
        if topic.bronze.name not in audited.tables:
            continue  # a release from before there was this topic
        begun = monotonic()
        judged = judged_rows(spark, settings, audited, topic).transform(kept)
        print_masked(f"{topic.bronze.name}: {judged.count()} rows judged, {monotonic() - begun:.1f} s")
        silver = tables_of(spark, judged, topic, settings.allowed_lateness_seconds)
        yield from silver.items()
        made[topic.silver.name] = silver[topic.silver.name]
    if not audited.read:
        print_masked("gold has never run: nothing of it to compare")
        return
    t, c, a = (_as_read_by_gold(spark, settings, audited, name, made) for name in ("transactions", "customers", "accounts"))
    yield from queries.gold(spark, transactions=t, customers=c, accounts=a, large_credit=str(settings.large_credit)).items()


def _as_read_by_gold(spark: SparkSession, settings: Settings, audited: Snapshot, topic: str, made: Mapping[str, DataFrame]) -> DataFrame:
    """A table of silver as gold has read it: the one computed here, or the stored version if silver has newer rows."""
    table = BY_NAME[f"silver.{topic}"]
    if snapshot.is_read(settings, audited, table):
        return made[table.name]
    print_masked(f"gold has read version {audited.read[table.name]} of {table.name}, not the newest: gold is compared with that one")
    return read(spark, snapshot.Pinned(str(table.path(settings)), audited.read[table.name])).transform(kept)


def _head(audited: Snapshot) -> str:
    batches = ", ".join(f"{table.name} to batch {audited.last_batch(table.topic)}" for table in BRONZE)
    return f"audit of {f'release {audited.release.release_id}' if audited.release else 'the tables as they are now'}: {batches}"


def _message(different: Mapping[str, Comparison], audited: Snapshot) -> str:
    names = ", ".join(f"{name} ({each.differences})" for name, each in different.items())
    first, example = next((name, each.examples[0]) for name, each in different.items())
    to_do = "rebuild the times of these rows from bronze with run backfill --start TIME --end TIME"
    if audited.release:
        to_do = "a release cannot be repaired: audit the tables as they are now, and run backfill if these differ, too"
    return f"found rows that are not what bronze says in {names}, expected none; the first, of {first}: {example}; {to_do}"
