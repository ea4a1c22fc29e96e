"""The generations of a query's checkpoint, and the files that Spark keeps in one, read without Spark.

A query has a folder, in it a folder for each generation and `generation.json`, which says which one is in use. Generations have rising
numbers. Of Spark's files `offsets/N` says how far batch N reaches (planned before it), `commits/N` that it has ended; `metadata` holds
the query's id and `sources/0/0` the first offsets of a query from Kafka. Beside a file lies its CRC (`.N.crc`).
"""

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from spark_jobs.runtime import storage
from spark_jobs.runtime.atomic_files import write_whole

FILE = "generation.json"
_CRC_HEAD = b"crc\0"
_CRC_BYTES = 4


@dataclass(frozen=True)
class Generation:
    """One generation of the checkpoint of a query, whose folder is `root`."""

    root: Path
    name: str

    @property
    def folder(self) -> Path:
        """Spark's checkpoint."""
        return self.root / self.name

    @property
    def planned(self) -> int:
        """The last batch that Spark has planned; -1 for none."""
        return self._last("offsets")

    @property
    def ended(self) -> int:
        """The last batch that has ended; -1 for none."""
        return self._last("commits")

    def plan(self, number: int) -> list[str]:
        """What Spark noted when it planned a batch, in lines; raises OSError or ValueError when that cannot be read."""
        return _read(self.folder / "offsets" / str(number)).splitlines()

    def damage(self) -> str | None:
        """What of the checkpoint Spark could not read at its next start, and why; None when it is whole, or was never used."""
        folder, planned, ended = self.folder, self.planned, self.ended
        if planned < 0 and ended < 0 and not (folder / "metadata").exists():
            return None
        logs = [("offsets", number, 3) for number in (planned - 1, planned)] + [("commits", ended, 2)]
        files = [
            (folder / log / str(number), lines) for log, number, lines in logs if number >= 0 and (folder / log / str(number)).exists()
        ]
        for file, lines in [(folder / "metadata", 1), *files, *((file, 2) for file in (folder / "sources").glob("0/0"))]:
            try:
                _check(_read(file), lines)
            except (OSError, ValueError) as error:
                return f"{file}: {error}"
        return None

    def use(self, facts: Mapping[str, Any]) -> None:
        """Take this generation into use, with these facts in the query's file, and remove all others.

        A crash on the way leaves the one before in use, or this one.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        write_whole(self.root / FILE, json.dumps(facts, indent=1))
        for name in storage.names(self.root):
            if name not in (FILE, self.name) and (self.root / name).is_dir():
                storage.remove(self.root / name)

    def _last(self, log: str) -> int:
        return max(_numbers(self.folder / log), default=-1)


def read_facts(root: Path) -> dict[str, Any] | None:
    """What the file of a query says of the generation in use; None without a file. Raises ValueError when it cannot be read."""
    try:
        facts = json.loads((root / FILE).read_text())
    except FileNotFoundError:
        return None
    if not isinstance(facts, dict):
        raise ValueError("it holds no JSON object")
    return facts


def next_number(root: Path) -> int:
    """The number of the next generation of a query: larger than that of any folder."""
    return max(_numbers(root), default=0) + 1


def _numbers(folder: Path) -> list[int]:
    return [int(name) for name in storage.names(folder) if name.isdecimal()]


def _read(file: Path) -> str:
    """The text of a file that is whole; raises ValueError or OSError otherwise."""
    content = file.read_bytes()
    if not content:
        raise ValueError("it is empty")
    if not _has_sums(content, file.with_name(f".{file.name}.crc")):
        raise ValueError("it differs from its check sums")
    return content.decode().removeprefix("\0")


def _check(text: str, lines: int) -> None:
    """Refuse, with ValueError, what has not that many lines: `v1`, where there are several, and a JSON object each."""
    found = text.splitlines()
    if len(found) < lines or (lines > 1 and not found[0].startswith("v")):
        raise ValueError(f"it has {len(found)} lines, expected {lines}")
    for line in found if lines == 1 else found[1:]:
        if not isinstance(json.loads(line), dict):
            raise ValueError("it has a line that is no JSON object")


def _has_sums(content: bytes, crc: Path) -> bool:
    """Whether a file is what Hadoop's CRC beside it says: of every so many bytes a CRC-32. Without a readable one it is."""
    sums = crc.read_bytes() if crc.exists() else b""
    if not sums.startswith(_CRC_HEAD) or len(sums) < 2 * _CRC_BYTES:
        return True
    size = int.from_bytes(sums[_CRC_BYTES : 2 * _CRC_BYTES])
    cuts = [*range(0, len(content), max(size, 1)), len(content)]
    return sums[2 * _CRC_BYTES :] == b"".join(zlib.crc32(content[a:b]).to_bytes(_CRC_BYTES) for a, b in pairwise(cuts))
