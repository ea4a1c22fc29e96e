"""Delta's transaction identifier, kept in the commit of the rows that it stands for: a repeated write finds itself done."""

from typing import NamedTuple


class Txn(NamedTuple):
    """How far an application has brought a table (txnAppId, txnVersion).

    `version` rises within an application: a bronze batch, a version of the table that is followed, or a count of writes.
    """

    application: str
    version: int
