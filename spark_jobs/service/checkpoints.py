"""The files that Spark keeps in the checkpoint of a query from Kafka, read without Spark.

`offsets/N` says how far batch N reaches (planned before it), `commits/N` that it has ended; `metadata` holds the query's id and
`sources/0/0` the first offsets. Beside a file lies its CRC (`.N.crc`). Checked is what Spark reads when it starts.
"""

import json
import zlib
from itertools import pairwise
from pathlib import Path

from spark_jobs.bronze.offsets import Positions

_CRC_HEAD = b"crc\0"
_CRC_BYTES = 4


def last(folder: Path, log: str) -> int:
    """The last batch that Spark planned (`offsets`) or ended (`commits`); -1 for none."""
    return max((int(file.name) for file in (folder / log).glob("[0-9]*") if file.name.isdecimal()), default=-1)


def ends(folder: Path, number: int) -> Positions:
    """How far a batch reaches; raises ValueError when that cannot be read."""
    return parse_offsets(_read(folder / "offsets" / str(number)).splitlines()[-1])


def parse_offsets(text: str) -> Positions:
    """The offsets of a query that reads one topic, in Spark's words: `{"topic": {"0": 7}}`; raises ValueError for anything else."""
    offsets = json.loads(text)
    if not isinstance(offsets, dict) or len(offsets) != 1 or not isinstance(positions := next(iter(offsets.values())), dict):
        raise ValueError("it has no offsets of one topic")
    if not all(type(offset) is int for offset in positions.values()):
        raise ValueError("it has offsets that are no numbers")
    return positions


def damage(folder: Path) -> str | None:
    """What of a checkpoint Spark could not read at its next start, and why; None when it is whole, or was never used."""
    planned, ended = last(folder, "offsets"), last(folder, "commits")
    if planned < 0 and ended < 0 and not (folder / "metadata").exists():
        return None
    logs = [("offsets", number, 3) for number in (planned - 1, planned)] + [("commits", ended, 2)]
    files = [(folder / log / str(number), lines) for log, number, lines in logs if number >= 0 and (folder / log / str(number)).exists()]
    for file, lines in [(folder / "metadata", 1), *files, *((file, 2) for file in (folder / "sources").glob("0/0"))]:
        try:
            _check(_read(file), lines)
        except (OSError, ValueError) as error:
            return f"{file}: {error}"
    return None


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
