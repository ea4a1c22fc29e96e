"""What Spark's checkpoints lack: the number of state partitions, and paths that hold in a copy.

Spark 4.2 leaves it out of logs of version 2, which named sources need, in the first run of a query. Without it a query that died within a
batch never starts again (SPARK-59662), and one that is started with fewer shuffle partitions loses the state of the others in silence.

The metadata of a transformWithState name the files of its schema by their whole paths, so a copy of a checkpoint would read, and need, the
files of the original.
"""

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path

from spark_jobs.live import places
from spark_jobs.runtime import storage
from spark_jobs.runtime.atomic_files import write_whole

PARTITIONS = "spark.sql.shuffle.partitions"
_POSITION = re.compile(r'"reservoirVersion":\d+,"index":-?\d+,"isStartingVersion":(true|false)')
_SCHEMA_FILE = re.compile(r'"(?:file|s3a):[^"]*(/state/[0-9]+/_stateSchema/[^"]*)"')


def record_partitions(checkpoint: Path, partitions: str) -> None:
    """Write into the offset logs of a query that does not run how many partitions its state has, where they lack it.

    That is `partitions` where it has none, or none yet. A log that cannot be read is left to Spark, which says so.
    """
    folder = checkpoint / "state" / "0" / "_metadata"
    if found := [*folder.glob("metadata"), *folder.glob("v2/[0-9]*")]:  # a transformWithState has one file a run
        (store, *_) = json.loads(found[0].read_text().splitlines()[1])["stateStoreInfo"]
        partitions = str(store["numPartitions"])
    for file in _offsets(checkpoint):
        try:
            version, planned, *sources = file.read_text().split("\n")
            facts = json.loads(planned)
        except ValueError:
            continue
        if version == "v2" and PARTITIONS not in facts["conf"]:
            facts["conf"][PARTITIONS] = partitions
            _rewrite(file, "\n".join([version, json.dumps(facts, separators=(",", ":")), *sources]))


def continue_at(checkpoint: Path, version: int) -> None:
    """Let a query that does not run continue as if it had taken its sources of live rows up to, and without, a version."""
    _move(_offsets(checkpoint), lambda line: not line.startswith(places.BESIDE), version, is_start=False)


def take_again(checkpoint: Path, source: str, version: int) -> None:
    """Let a query that does not run take, with its next batch, all rows that a source has at a version, and what comes later.

    The source is a Delta table. The last batch must have ended. When a query starts, Spark gives its sources that batch again, from where
    the one before ended: so both have this position.
    """
    newest = sorted(_offsets(checkpoint), key=lambda each: int(each.name))[-2:]
    _move(newest, lambda line: line.startswith(f"{source}:"), version, is_start=True)


def point_to(checkpoint: Path, place: Path) -> None:
    """Let the state's metadata in a checkpoint that does not run name the files of its schema as they will lie in a place."""
    address = str(place) if storage.is_remote(place) else f"file:{place}"
    for file in checkpoint.glob("state/*/_metadata/v2/[0-9]*"):
        text = file.read_text()
        if (moved := _SCHEMA_FILE.sub(lambda found: f'"{address}{found[1]}"', text)) != text:
            _rewrite(file, moved)


def _offsets(checkpoint: Path) -> list[Path]:
    return list((checkpoint / "offsets").glob("[0-9]*"))


def _move(files: Iterable[Path], is_meant: Callable[[str], bool], version: int, *, is_start: bool) -> None:
    """Put other positions in a Delta table into the lines of some sources; `is_start`: all its rows at that version come first."""
    position = f'"reservoirVersion":{version},"index":-1,"isStartingVersion":{str(is_start).lower()}'
    for file in files:
        lines = file.read_text().split("\n")
        _rewrite(file, "\n".join(_POSITION.sub(position, line) if is_meant(line) else line for line in lines))


def _rewrite(file: Path, text: str) -> None:
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    write_whole(file, text)
