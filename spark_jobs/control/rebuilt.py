"""Which records the steps of backfills have rebuilt since their tables were judged good, so that a gate judges these and no others.

Beside the checkpoints lies, for each topic, a table of coordinates: those of the records of the range, and of all rows that a step has
added, changed or removed. A file says from which versions of silver's tables to which ones the steps have brought them. Where that is
not all that has happened to the tables since they were judged good, the record does not count: the gate judges all batches then.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from spark_jobs.control.verdicts import last_passed, verdicts_that_matter
from spark_jobs.lake.tables import LAYERS, Table
from spark_jobs.lake.versions import hold_same_rows
from spark_jobs.runtime import storage
from spark_jobs.runtime.atomic_files import write_whole
from spark_jobs.runtime.settings import Settings

BEFORE, AFTER = "before", "after"


def root(settings: Settings) -> Path:
    """Where the coordinates of rebuilt records of all topics are."""
    return settings.checkpoints / "rebuilt"


def folder(settings: Settings, topic: str) -> Path:
    """Where the coordinates of a topic's rebuilt records are; the versions lie beside it."""
    return root(settings) / topic


@contextmanager
def noted(settings: Settings, topic: str, append_to: Callable[[Path], None]) -> Iterator[None]:
    """Note the coordinates of what a step rebuilds in the tables of a topic, which it writes meanwhile, under their leases.

    `append_to` appends them to a Delta table in a folder, or makes it. They come to those of the steps before, as long as no gate has
    passed these. A process that dies meanwhile leaves versions that the tables do not have, so that nothing that is noted counts.
    """
    tables = [table for table in LAYERS["silver"] if table.topic == topic]
    now, before = _versions(settings, tables), _read(settings, topic)
    passed = {name: verdict.version for name, verdict in last_passed(verdicts_that_matter(settings)).items()}
    continues = _are_same(settings, tables, before.get(AFTER, {}), now) and not _are_same(settings, tables, passed, now)
    if not continues:
        _file(settings, topic).unlink(missing_ok=True)
        storage.remove(folder(settings, topic))
    append_to(folder(settings, topic))
    yield
    write_versions(settings, topic, before[BEFORE] if continues else now, _versions(settings, tables))


def write_versions(settings: Settings, topic: str, before: Mapping[str, int], after: Mapping[str, int]) -> None:
    """Note from which versions of a topic's tables to which ones the noted records have been rebuilt."""
    write_whole(_file(settings, topic), json.dumps({BEFORE: before, AFTER: after}))


def find(settings: Settings, tables: list[Table], passed: Mapping[str, int], now: Mapping[str, int]) -> Path | None:
    """The table of the coordinates of all that has changed in the silver tables of a topic since the versions at which they passed.

    Some may have passed after the steps already, when the gate of another one closed. None where something else may have changed, too,
    or where nothing is noted.
    """
    topic = tables[0].topic
    noted = _read(settings, topic)
    before, after = noted.get(BEFORE, {}), noted.get(AFTER, {})
    is_all = _are_same(settings, tables, after, now) and all(
        _are_same(settings, [table], before, passed) or _are_same(settings, [table], after, passed) for table in tables
    )
    return folder(settings, topic) if is_all else None


def _file(settings: Settings, topic: str) -> Path:
    return folder(settings, topic).with_suffix(".json")


def _read(settings: Settings, topic: str) -> dict[str, dict[str, int]]:
    file = _file(settings, topic)
    return dict(json.loads(file.read_text())) if file.exists() else {}


def _versions(settings: Settings, tables: list[Table]) -> dict[str, int]:
    return {table.name: table.open(settings).version() for table in tables}


def _are_same(settings: Settings, tables: list[Table], one: Mapping[str, int], other: Mapping[str, int]) -> bool:
    """Whether all tables have the same rows at these versions."""
    return all(table.name in one and table.name in other for table in tables) and all(
        hold_same_rows(settings, table, one[table.name], other[table.name]) for table in tables
    )
