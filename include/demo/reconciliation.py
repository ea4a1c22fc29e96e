"""The reconciliation of a release: where every Kafka record ended up, by its coordinates, and what the gates said. Needs no Spark."""

from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from spark_jobs import control
from spark_jobs.bronze import gaps, incarnations
from spark_jobs.control.verdicts import newest_verdicts
from spark_jobs.lake.tables import (
    BATCHES,
    BRONZE_ACCOUNTS,
    BRONZE_CUSTOMERS,
    BRONZE_TRANSACTIONS,
    BY_NAME,
    LAYERS,
    SILVER_ACCOUNTS,
    SILVER_CUSTOMERS,
    SILVER_TRANSACTIONS,
    TRANSACTIONS_DUPLICATES,
    TRANSACTIONS_QUARANTINE,
    Table,
)
from spark_jobs.releases import archive
from spark_jobs.releases.releases import Release
from spark_jobs.runtime.settings import Settings, read_endpoints

COORDINATES = ["_topic", "_partition", "_offset"]
# Queries answer with string views, which pyarrow can neither filter nor join.
COORDINATES_AND_BATCH = pa.schema([("_topic", pa.string()), ("_partition", pa.int32()), ("_offset", pa.int64()), ("_batch", pa.int64())])
PARTS = {"silver": SILVER_TRANSACTIONS, "duplicates": TRANSACTIONS_DUPLICATES, "quarantine": TRANSACTIONS_QUARANTINE}
DIMENSIONS = {BRONZE_CUSTOMERS: SILVER_CUSTOMERS, BRONZE_ACCOUNTS: SILVER_ACCOUNTS}
OUTCOMES = ("output", "duplicates", "quarantined", "superseded", "no_change")


@dataclass(frozen=True)
class Gate:
    """What a layer's gate said last: of every table the newest verdict."""

    layer: str
    passed: bool
    tables: int
    evaluated: int
    failed_expectations: list[str]
    report: str | None


@dataclass(frozen=True)
class Reconciliation:
    """Rows by part, and a line for each way in which they do not add up."""

    rows: dict[str, int]
    differences: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        silver, duplicates, quarantine = (self.rows[part] for part in PARTS)
        return f"bronze {self.rows['bronze']:,} = silver {silver:,} + duplicates {duplicates:,} + quarantine {quarantine:,}"


def reconcile(settings: Settings, release: Release) -> Reconciliation:
    """Compare bronze with silver, duplicates and quarantine at the versions of a release, record by record.

    Each of bronze's records up to the release's last batch must be in exactly one of the three, once, and nothing else may be.
    """
    bronze = _coordinates(_open(settings, BRONZE_TRANSACTIONS, release), release.last_batches.get(BRONZE_TRANSACTIONS.name, 0))
    parts = {part: _coordinates(_open(settings, table, release)) for part, table in PARTS.items()}
    after = pa.concat_tables(list(parts.values()))
    problems = {
        "in bronze more than once": _repeated(bronze),
        "in more than one place, or twice in one": _repeated(after),
        "in bronze but nowhere after": bronze.join(after, COORDINATES, join_type="left anti").num_rows,
        "after bronze but not in it": after.join(bronze, COORDINATES, join_type="left anti").num_rows,
    }
    differences = [f"{count} records are {what}" for what, count in problems.items() if count]
    rows = {"bronze": bronze.num_rows, **{part: coordinates.num_rows for part, coordinates in parts.items()}}
    return Reconciliation(rows, differences + _dimension_differences(settings, release))


def table_rows(settings: Settings, release: Release) -> dict[str, int]:
    """Rows of each table that a release names, counted at the version that it names."""
    tables = [table for table in BY_NAME.values() if table.name in release.versions]
    return {table.name: control.count(_open(settings, table, release)) for table in tables}


def read_gates(settings: Settings) -> list[Gate]:
    """For each layer the newest verdicts on its tables, as one."""
    newest, airflow = newest_verdicts(settings).values(), read_endpoints(settings.home).get("airflow_url", "")
    gates = []
    for layer in LAYERS:
        verdicts = [verdict for verdict in newest if verdict.layer == layer]
        closed = [verdict for verdict in verdicts if not verdict.passed]
        shown = max(closed or verdicts, key=lambda verdict: verdict.judged_at, default=None)
        gates.append(
            Gate(
                layer=layer,
                passed=bool(verdicts) and not closed,
                tables=len(verdicts),
                evaluated=sum(verdict.evaluated for verdict in verdicts),
                failed_expectations=[f"{verdict.table}: {name}" for verdict in closed for name in verdict.critical or ["?"]],
                report=shown.page and f"{airflow}/quality/{shown.page}" if shown else None,
            )
        )
    return gates


def ingested(settings: Settings, table: Table, topic: str) -> dict[int, tuple[int, int]]:
    """For each partition of a topic, as it is now: how many of its records bronze holds, and the offset after the last one.

    Of records that bronze does without (control.holes), those that follow the last one directly are passed, too.
    """
    incarnation = incarnations.newest(settings, topic)
    label = incarnation.label if incarnation else topic
    if not table.exists(settings):
        return {}
    per_partition = "SELECT _topic, _partition, count(*) AS records, max(_offset) + 1 AS next FROM t GROUP BY _topic, _partition"
    rows = control.query(table.open(settings), per_partition).to_pylist()
    found = {row["_partition"]: (row["records"], row["next"]) for row in rows if row["_topic"] == label}
    for hole in sorted(gaps.recorded(settings, table, label), key=lambda hole: int(hole["first_offset"])):
        records, behind = found.get(hole["_partition"], (0, 0))
        if hole["first_offset"] <= behind:
            found[hole["_partition"]] = records, max(behind, hole["last_offset"] + 1)
    return found


def _dimension_differences(settings: Settings, release: Release) -> list[str]:
    """Dimension rows have no table of their own for what changed nothing: there the counts of control.batches must add up."""
    batches = [row for row in control.read(settings, BATCHES).to_pylist() if row["job"] == "silver"]
    differences = []
    for bronze, silver in DIMENSIONS.items():
        last = release.last_batches.get(bronze.name, 0)
        taken = [row for row in batches if row["table"] == silver.name and row["last_batch"] <= last]
        found = sum(row["input"] for row in taken)
        accounted = sum(row[outcome] or 0 for row in taken for outcome in OUTCOMES)
        expected = _coordinates(_open(settings, bronze, release), last).num_rows
        if not expected == found == accounted:
            differences.append(f"{silver.name}: {expected} rows of {bronze.name}, {found} taken, {accounted} accounted for")
    return differences


def _open(settings: Settings, table: Table, release: Release) -> DeltaTable:
    return archive.open_table(settings, release, table.name)


def _coordinates(table: DeltaTable, last_batch: int | None = None) -> pa.Table:
    """The coordinates of a table's rows, up to a batch."""
    rows = control.query(table, "SELECT _topic, _partition, _offset, _batch FROM t").cast(COORDINATES_AND_BATCH)
    if last_batch is not None:
        rows = rows.filter(pc.less_equal(rows["_batch"], last_batch))
    return rows.select(COORDINATES)


def _repeated(coordinates: pa.Table) -> int:
    counts = coordinates.group_by(COORDINATES).aggregate([([], "count_all")])
    return int(counts.filter(pc.greater(counts["count_all"], 1)).num_rows)
