"""A service's tables, and all that goes with owning them for as long as the application runs."""

import logging
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from spark_jobs import leases
from spark_jobs.service import heartbeat
from spark_jobs.service.heartbeat import HeartbeatFile
from spark_jobs.service.services import Service
from spark_jobs.settings import Settings
from spark_jobs.tables import Table

log = logging.getLogger("ledger")


@contextmanager
def owning(
    settings: Settings, service: Service, tables: Collection[Table], name: str, parts: Collection[str], run_id: str
) -> Iterator[HeartbeatFile]:
    """The heartbeat of the application `name`, which has the leases of these tables; what was left of earlier ones is ended.

    Raises LeaseHeld at once when another process has one.
    """
    with leases.hold(settings, tables, owner=service.command, wait_seconds=0) as epoch:
        for who in heartbeat.end_leftovers(settings, service, parts):
            log.warning("what was left of %s is ended", who)
        with heartbeat.beating(settings, service, name, parts, run_id, epoch) as heart:
            yield heart
