"""Delta's transaction identifier, stored in the commit of the rows: a repeated write finds that it is done."""

import threading
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from deltalake import CommitProperties, Transaction

from spark_jobs.lake import leases
from spark_jobs.lake.table import Table
from spark_jobs.runtime.settings import Settings

# On a local path, Delta in the JVM looks whether a version is there and then renames its file to it: it would overwrite one that delta-rs
# has written in between. Where both write a table, they are in one process, and commit one after the other.
COMMITTING = threading.Lock()


class Txn(NamedTuple):
    """How far an application has brought a table (txnAppId, txnVersion).

    `version` rises within an application: a bronze batch, a version of the table that is followed, or a count of writes.
    """

    application: str
    version: int


def applied(settings: Settings, table: Table, application: str) -> int | None:
    """How far an application has brought a table; None when it has written nothing yet, or the table does not exist."""
    return table.open(settings).transaction_version(application) if table.exists(settings) else None


def commit_properties(
    settings: Settings, table: Table, facts: Mapping[str, Any] | None = None, transactions: Iterable[Txn] = ()
) -> CommitProperties:
    """What a commit by delta-rs says beside its rows. Raises LedgerError as `leases.commit_metadata` does."""
    return CommitProperties(
        custom_metadata={"userMetadata": leases.commit_metadata(settings, table, facts or {})},
        app_transactions=[Transaction(*each) for each in transactions],
    )
