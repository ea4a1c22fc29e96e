"""Tables that look older than they are, and gold that says how far it has come: for tests of maintenance."""

import os
import re

from deltalake import CommitProperties, DeltaTable, Transaction

from spark_jobs.lake import tables
from spark_jobs.lake.tables import GOLD, Table
from spark_jobs.runtime.settings import Settings

TIMES = re.compile(r'"(timestamp|deletionTimestamp|modificationTime)":(\d+)')


def age(settings: Settings, table: Table, days: float) -> None:
    """Make everything that was done to a table so far look older: its commits and its files."""
    path, seconds = table.path(settings), days * 86400
    for commit in (path / "_delta_log").glob("*.json"):
        (commit.parent / f".{commit.name}.crc").unlink(missing_ok=True)
        commit.write_text(TIMES.sub(lambda found: f'"{found[1]}":{int(found[2]) - int(seconds * 1000)}', commit.read_text()))
    for each in path.rglob("*"):
        stat = each.stat()
        os.utime(each, (stat.st_atime - seconds, stat.st_mtime - seconds))


def data_files(settings: Settings, table: Table) -> set[str]:
    return {
        str(each.relative_to(table.path(settings))) for each in table.path(settings).rglob("*.parquet") if "_delta_log" not in each.parts
    }


def follow(settings: Settings, upto: int, application: str = "gold", *followers: Table) -> None:
    """Gold's tables say how far they have come."""
    for table in followers or GOLD:
        tables.ensure_tables(settings, [table])
        delta = DeltaTable(str(table.path(settings)))
        told = CommitProperties(app_transactions=[Transaction(application, upto)])
        delta.create_write_transaction([], "append", delta.schema(), commit_properties=told)
