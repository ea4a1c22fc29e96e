"""The Delta properties of tables: how long they keep what readers of a release and streams may still need, and how their log is read."""

from spark_jobs.lake.table import LAYERED, Table
from spark_jobs.runtime.settings import Settings

# A release names versions from some time before it was published, and may be read for some time after it has expired.
MARGIN_DAYS = 1
# A stream that was stopped (gold after silver's change feed, silver after bronze) needs the commits since then, and their files
# also when compaction has replaced them. Delta's own values: what a gate that waits over a holiday may take, and more.
LEAST_FILE_DAYS = 7
LEAST_LOG_DAYS = 30


# As Spark has it; delta-rs has 100. Whoever opens a table reads the commits since the last checkpoint, 0.3 ms each; a checkpoint takes 20.
# Of tables with a commit in each second it would be written too often: bronze, and those of live queries.
_COMMITS_A_CHECKPOINT = 10


def properties_of(settings: Settings, table: Table) -> dict[str, str]:
    """The properties that a table has beside those that it declares."""
    is_of_runs = table.layer == "control" or (table.layer != "bronze" and table.topic != "")
    checkpoints = {"delta.checkpointInterval": str(_COMMITS_A_CHECKPOINT)} if is_of_runs else {}
    return checkpoints | (_retention(settings) if table.layer in LAYERED else {})


def _retention(settings: Settings) -> dict[str, str]:
    """For how long files that were replaced, and commits, stay; both for longer than a release is offered.

    Whoever writes a table would otherwise remove expired commits by itself, and asks nobody who may still need them: maintenance does.
    """
    wanted = settings.release_days + MARGIN_DAYS
    return {
        "delta.deletedFileRetentionDuration": f"interval {max(wanted, LEAST_FILE_DAYS)} days",
        "delta.logRetentionDuration": f"interval {max(wanted, LEAST_LOG_DAYS)} days",
        "delta.enableExpiredLogCleanup": "false",
    }
