"""Series of this host: how jobs ended, the disks, who holds leases. Reads what jobs leave behind; takes no lock that a job may want."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from include.metrics.series import Sample
from spark_jobs.runtime.job_counts import KILLED, read_all
from spark_jobs.runtime.job_process import MEANINGS
from spark_jobs.runtime.settings import Settings

EXIT_CODES = ("0", "1", *map(str, sorted(MEANINGS)), KILLED)  # of a job that ran, all are there: a count that appears late looks new
_LOCKS = Path("/proc/locks")


def read_jobs(settings: Settings) -> Iterator[Sample]:
    """Starts and ends of every job that ever ran on these checkpoints."""
    for counts in read_all(settings):
        labels = (counts.job,)
        yield "ledger_job_starts_total", labels, float(counts.started)
        for code in sorted({*EXIT_CODES, *counts.ended}):
            yield "ledger_job_ends_total", (counts.job, code), float(counts.ended.get(code, 0))
        yield "ledger_job_seconds_total", labels, counts.seconds
        yield "ledger_job_running", labels, float(len(counts.running))
        yield "ledger_job_failures_in_a_row", labels, float(counts.failures_in_a_row)
        if counts.last_ended_at:
            yield "ledger_job_last_end_timestamp_seconds", labels, counts.last_ended_at


def read_host(settings: Settings) -> Iterator[Sample]:
    """Disks and leases."""
    for place in ("home", "warehouse", "checkpoints"):
        folder = getattr(settings, place)
        if folder.is_dir():
            usage = shutil.disk_usage(folder)
            yield "ledger_disk_free_bytes", (place,), float(usage.free)
            yield "ledger_disk_size_bytes", (place,), float(usage.total)
    locked = _locked() if _LOCKS.exists() else None
    for file in sorted((settings.warehouse / ".leases").glob("*.lock")):
        yield "ledger_lease_takes_total", (file.stem,), float(json.loads(file.read_text() or "{}").get("epoch", 0))
        if locked is not None:
            status = file.stat()
            yield "ledger_lease_held", (file.stem,), float((os.major(status.st_dev), os.minor(status.st_dev), status.st_ino) in locked)


def _locked() -> set[tuple[int, int, int]]:
    """Device and number of every file on which the kernel knows a lock; asking for a lock instead could make a job wait for us."""
    found = set()
    for line in _LOCKS.read_text().splitlines():
        words = line.split()
        if "->" not in words and len(words) > 5:  # the others wait
            major, minor, inode = words[5].split(":")
            found.add((int(major, 16), int(minor, 16), int(inode)))
    return found
