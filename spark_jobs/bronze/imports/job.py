"""The job behind `run import`: adds history that is older than Kafka keeps to bronze, once, however often it runs. Needs no Spark.

A row gets stable coordinates: `_topic` = `file:<name>`, `_partition` 0, `_offset` = its number from 0, in the order of its source. Rows
that bronze already has are compared byte by byte; rows are added only at the end of a source.
"""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from string import Template

import pyarrow as pa
from deltalake import DeltaTable

from spark_jobs import control
from spark_jobs.bronze import additions
from spark_jobs.bronze.imports import files, postgres
from spark_jobs.bronze.imports.texts import KeyAndValue, Texts, fields_of, missing_fields, to_message
from spark_jobs.lake.table import Table
from spark_jobs.lake.topic import Topic
from spark_jobs.lake.topics import BY_TOPIC
from spark_jobs.runtime import progress
from spark_jobs.runtime.errors import SettingsError
from spark_jobs.runtime.settings import Settings

log = logging.getLogger(__name__)

_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
_AT_ONCE = 50_000
_END = Template("select coalesce(max(_offset), -1) + 1 as next_offset from t where _topic = '$topic'")
_HELD = Template("select _offset, key, value from t where _topic = '$topic' and _offset >= $first and _offset < $end")


@dataclass(frozen=True)
class Source:
    """What to import: files, or a Postgres table with the unique column that orders its rows."""

    name: str
    file: Path | None = None
    table: str | None = None
    order_by: str | None = None


def check_source(source: Source) -> None:
    """Refuse, with SettingsError, what names no source."""
    if not _NAME.fullmatch(source.name):
        raise SettingsError(f"--name: found {source.name[:120]!r}, expected 1 to 100 letters, digits or any of . _ -")
    if (source.table is None) != (source.order_by is None):
        raise SettingsError(
            "found only one of --postgres and --order-by, expected both: the table, and a unique column that orders its rows"
        )
    if source.file is not None:
        files.find_files(source.file)


def run(settings: Settings, table: Table, source: Source) -> None:
    """Add to a bronze table the rows of a source that it lacks, in one commit. The caller holds its lease.

    Raises SettingsError when the source cannot be used, or a row that was imported has changed or is gone; then nothing is written.
    """
    topic = f"file:{source.name}"
    with additions.open_spool(settings, table) as spool:
        count = _collect(settings, table, topic, source, spool)
        batch = additions.append(settings, table, spool, f"import {topic}")
    if batch is None:
        log.info("%s: all %d rows of %s are there already; nothing was written", table.name, count, topic)
    else:
        log.info("%s: %s has %d rows, %d were added as batch %d", table.name, topic, count, spool.rows, batch)
        log.info("next: the DAG medallion, or by hand silver, gate bronze, gate silver, gold, gate gold, release")


def _collect(settings: Settings, table: Table, topic: str, source: Source, spool: additions.Spool) -> int:
    """Put the rows that bronze lacks on the spool; returns how many the source has."""
    bronze = table.open(settings)
    end = int(control.value(bronze, _END.substitute(topic=topic)))
    now = datetime.now(UTC).replace(microsecond=0)
    fixed = {"headers": None, "_topic": topic, "_partition": 0, "_timestamp": now, "_batch": None}
    count = 0
    with _open(settings, BY_TOPIC[table.topic], source) as messages, progress.phase(topic) as phase:
        while part := list(islice(messages, _AT_ONCE)):
            stored = _stored(bronze, topic, count, min(count + len(part), end))
            for offset, message in enumerate(part, start=count):
                if offset not in stored:
                    spool.add({"key": message[0], "value": message[1], "_offset": offset, **fixed})
                elif stored[offset] != message:
                    raise _changed(topic, offset, "is another than the one that was imported")
            count += len(part)
            phase.reach(count, f"{topic}: {count:,} rows read")
    if count < end:
        raise _changed(topic, count, "was imported and is gone now")
    if not count:
        raise SettingsError(f"{topic}: found no row, expected at least one below the names of the columns")
    return count


def _stored(bronze: DeltaTable, topic: str, first: int, end: int) -> dict[int, KeyAndValue]:
    if first >= end:
        return {}
    rows = control.query(bronze, _HELD.substitute(topic=topic, first=first, end=end))
    keys, values = (rows[name].cast(pa.binary()).to_pylist() for name in ("key", "value"))
    return dict(zip(rows["_offset"].to_pylist(), zip(keys, values, strict=True), strict=True))


def _changed(topic: str, offset: int, what: str) -> SettingsError:
    return SettingsError(
        f"{topic}: row {offset + 1} (_offset {offset}) {what}; expected a source that only grew at its end: "
        "import it under another --name, or repair it; nothing was written"
    )


@contextmanager
def _open(settings: Settings, topic: Topic, source: Source) -> Iterator[Iterator[KeyAndValue]]:
    """The messages of a source, in order."""
    if source.file is not None:
        yield _of_files(topic, files.find_files(source.file))
    else:
        with postgres.open_table(settings, source.table or "", source.order_by or "") as table:
            yield _convert(topic, table.columns, table.rows(), f"--postgres {source.table}")


def _of_files(topic: Topic, found: list[Path]) -> Iterator[KeyAndValue]:
    headers = [files.read_columns(file) for file in found]
    for file, columns in zip(found, headers, strict=True):
        fields_of(topic, columns, str(file))  # all of them, before any row is read
    for file, columns in zip(found, headers, strict=True):
        yield from _convert(topic, columns, files.read_rows(file), str(file))


def _convert(topic: Topic, columns: list[str], rows: Iterator[Texts], where: str) -> Iterator[KeyAndValue]:
    fields = fields_of(topic, columns, where)
    if missing := missing_fields(topic, fields):
        log.warning("%s: found no column for %s: null in every row", where, ", ".join(missing))
    return map(to_message(topic, fields), rows)
