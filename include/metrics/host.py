"""Series of this host: how jobs ended, the disks, who holds leases. Reads what jobs leave behind; takes no lock that a job may want."""

import shutil
from collections.abc import Iterator

from include.metrics.series import Sample
from spark_jobs.lake import leases
from spark_jobs.runtime import storage
from spark_jobs.runtime.job_counts import KILLED, read_all
from spark_jobs.runtime.job_process import MEANINGS
from spark_jobs.runtime.settings import Settings

EXIT_CODES = ("0", "1", *map(str, sorted(MEANINGS)), KILLED)  # of a job that ran, all are there: a count that appears late looks new


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
        if not storage.is_remote(folder) and folder.is_dir():  # object storage has no disk to fill
            usage = shutil.disk_usage(folder)
            yield "ledger_disk_free_bytes", (place,), float(usage.free)
            yield "ledger_disk_size_bytes", (place,), float(usage.total)
    for lease in leases.read_all(settings):
        yield "ledger_lease_takes_total", (lease.name,), float(lease.epoch)
        if lease.is_held is not None:
            yield "ledger_lease_held", (lease.name,), float(lease.is_held)
