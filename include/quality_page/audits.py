"""What audits found: of each the tables with their rows, and what differs from bronze."""

from dataclasses import dataclass
from datetime import datetime

from include.quality_page.reading import Row, Warehouse
from spark_jobs.lake.tables import AUDITS

AUDIT_DAG = "audit"

_NEWEST = "select * from t where audited_at = (select max(audited_at) from t)"
_OF_RUN = "select * from t where run_id = $run_id order by audited_at desc limit 1000"


@dataclass(frozen=True)
class Audit:
    """One audit: of the tables as they were at `at`, or of a release. `tables` are rows of control.audits, those that differ first."""

    at: datetime
    release: int | None
    tables: tuple[Row, ...]

    @property
    def rows(self) -> int:
        """The rows that were compared."""
        return sum(int(row["rows"]) for row in self.tables)

    @property
    def seconds(self) -> int:
        """How long the comparisons took, together."""
        return round(sum(float(row["seconds"]) for row in self.tables))

    @property
    def differing(self) -> tuple[Row, ...]:
        """The tables that are not what bronze says."""
        return tuple(row for row in self.tables if row["missing"] or row["unexpected"])


def newest(warehouse: Warehouse) -> Audit | None:
    """The newest audit; None before the first."""
    return _audit(warehouse.select(AUDITS, _NEWEST))


def of_run(warehouse: Warehouse, run_id: str) -> Audit | None:
    """The audit of a run, of several tries the last; None where it has recorded none."""
    rows = warehouse.select(AUDITS, _OF_RUN, run_id=run_id)
    return _audit([row for row in rows if row["audited_at"] == rows[0]["audited_at"]])


def _audit(rows: list[Row]) -> Audit | None:
    if not rows:
        return None
    in_order = sorted(rows, key=lambda row: (not row["missing"] and not row["unexpected"], row["table"]))
    return Audit(rows[0]["audited_at"], rows[0]["release_id"], tuple(in_order))
