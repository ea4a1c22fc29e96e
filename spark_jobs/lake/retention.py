"""How long bronze, silver and gold keep what readers of a release and streams may still need, as Delta properties of their tables."""

from spark_jobs.runtime.settings import Settings

# A release names versions from some time before it was published, and may be read for some time after it has expired.
MARGIN_DAYS = 1
# A stream that was stopped (gold after silver's change feed, silver after bronze) needs the commits since then, and their files
# also when compaction has replaced them. Delta's own values: what a gate that waits over a holiday may take, and more.
LEAST_FILE_DAYS = 7
LEAST_LOG_DAYS = 30


def retention_properties(settings: Settings) -> dict[str, str]:
    """For how long files that were replaced, and commits, stay; both for longer than a release is offered.

    Whoever writes a table would otherwise remove expired commits by itself, and asks nobody who may still need them: maintenance does.
    """
    wanted = settings.release_days + MARGIN_DAYS
    return {
        "delta.deletedFileRetentionDuration": f"interval {max(wanted, LEAST_FILE_DAYS)} days",
        "delta.logRetentionDuration": f"interval {max(wanted, LEAST_LOG_DAYS)} days",
        "delta.enableExpiredLogCleanup": "false",
    }
