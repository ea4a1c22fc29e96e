"""A service's tables, and all that goes with owning them for as long as the application runs."""

import logging
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from spark_jobs.lake import leases
from spark_jobs.lake.tables import Table
from spark_jobs.runtime.settings import Settings
from spark_jobs.service import heartbeat
from spark_jobs.service.heartbeat import HeartbeatFile
from spark_jobs.service.services import Service

log = logging.getLogger("ledger")


@contextmanager
def leasing(settings: Settings, service: Service, tables: Collection[Table], owner: str, parts: Collection[str]) -> Iterator[int]:
    """The leases of a service's tables, at once or not at all; what was left of its applications of these topics or queries is ended.

    Yields the epoch of the leases. Raises LeaseHeld when another process has one.
    """
    with leases.hold(settings, tables, owner=owner, wait_seconds=0) as epoch:
        for who in heartbeat.end_leftovers(settings, service, parts):
            log.warning("what was left of %s is ended", who)
        yield epoch


@contextmanager
def owning(
    settings: Settings, service: Service, tables: Collection[Table], name: str, parts: Collection[str], run_id: str
) -> Iterator[HeartbeatFile]:
    """The heartbeat of the application `name`, which has the leases of these tables (`leasing`)."""
    with (
        leasing(settings, service, tables, service.command, parts) as epoch,
        heartbeat.beating(settings, service, name, parts, run_id, epoch) as heart,
    ):
        yield heart
