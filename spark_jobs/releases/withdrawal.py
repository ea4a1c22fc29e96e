"""A new release after an erasure, and the withdrawal of all before it with their copies and catalogues.

The rows that stay were judged and released before. So no gate judges them again: the verdicts hold for the versions that hold these rows
now, as after a roll-back.
"""

from dataclasses import replace
from datetime import UTC, datetime

from spark_jobs import control
from spark_jobs.control import rebuilt
from spark_jobs.control.verdicts import newest_verdicts, next_time
from spark_jobs.lake import leases
from spark_jobs.lake.tables import BY_NAME, GOLD, QUALITY_RESULTS, RELEASES, SILVER
from spark_jobs.lake.versions import hold_same_rows
from spark_jobs.releases import archive, catalogues, releases
from spark_jobs.runtime import storage
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.kill_points import kill_point
from spark_jobs.runtime.settings import Settings


def refuse_unreleased(settings: Settings) -> None:
    """Raise LedgerError where silver or gold hold rows that are in no release, so that no gate may have judged them."""
    if (release := releases.latest_release(settings)) is None:
        return
    for table in (*SILVER, *GOLD):
        version = release.versions.get(table.name)
        if version is None or not hold_same_rows(settings, table, version, table.open(settings).version()):
            raise LedgerError(
                f"found rows of {table.name} that release {release.release_id} lacks, expected all to be judged and released before a "
                "person is erased: run the DAG medallion to its end, or gates and release by hand, and try again"
            )


def publish_anew(settings: Settings, run_id: str) -> int | None:
    """Release the tables as they are, and withdraw all earlier releases; returns its number, None where nothing was ever released.

    May be repeated. The caller holds the leases of bronze, silver and gold.
    """
    storage.remove(rebuilt.root(settings))
    if releases.latest_release(settings) is None:
        return None
    now, heads = next_time(settings, datetime.now(UTC)), {name: table.open(settings).version() for name, table in BY_NAME.items()}
    verdicts = [
        replace(verdict, success=True, run_id=run_id, judged_at=now, version=heads[name], findings=(), report=None, decision=None)
        for name, verdict in newest_verdicts(settings).items()
    ]
    with leases.hold(settings, [QUALITY_RESULTS], owner="forget"):
        control.replace_under_lease(settings, QUALITY_RESULTS, [verdict.row() for verdict in verdicts])
    kill_point("before the release of an erasure")
    number = releases.publish(settings)
    with leases.hold(settings, [RELEASES], owner="forget"):
        rows = control.read(settings, RELEASES).to_pylist()
        control.replace_under_lease(settings, RELEASES, [row for row in rows if row["release_id"] == number])
    storage.remove(archive.root(settings))
    catalogues.bring_up_to_date(settings)
    return number
