"""Delta's transaction identifier, stored in the commit of the rows: a repeated write finds that it is done."""

from typing import NamedTuple

from spark_jobs.lake.table import Table
from spark_jobs.runtime.settings import Settings


class Txn(NamedTuple):
    """How far an application has brought a table (txnAppId, txnVersion).

    `version` rises within an application: a bronze batch, a version of the table that is followed, or a count of writes.
    """

    application: str
    version: int


def applied(settings: Settings, table: Table, application: str) -> int | None:
    """How far an application has brought a table; None when it has written nothing yet, or the table does not exist."""
    return table.open(settings).transaction_version(application) if table.exists(settings) else None
