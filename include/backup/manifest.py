"""What a backup consists of: the list of its files with their sizes and hashes, written last. Without it a folder is no backup."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

from spark_jobs.lake import schema
from spark_jobs.runtime.atomic_files import write_whole
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.settings import Settings

FILE = "manifest.json"
_CHUNK = 1 << 20
# Settings on which the content of tables depends: a home that is restored continues with the same ones, or says that it does not.
_MEANING = ("allowed_lateness_seconds", "large_credit", "release_days", "customer_wait_minutes")


@dataclass(frozen=True)
class Manifest:
    """A backup's own description.

    `made_at` is when nothing was written (ISO 8601, UTC). `schema_version` is that of the warehouse. `settings` are those on which the
    content of tables depends, as texts. `tables` has the version of each Delta table. `files` has the size and the SHA-256 of each file
    by its path below the backup.
    """

    made_at: str
    schema_version: int
    settings: Mapping[str, str]
    tables: Mapping[str, int]
    files: Mapping[str, tuple[int, str]]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(size for size, _ in self.files.values())


def meaning(settings: Settings) -> dict[str, str]:
    """The settings on which the content of tables depends, by the names of their variables."""
    return {f"LEDGER_{name.upper()}": str(getattr(settings, name)) for name in _MEANING}


def measure(folder: Path) -> dict[str, tuple[int, str]]:
    """The size and the hash of every file below a folder."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return {str(file.relative_to(folder)): (file.stat().st_size, _hash(file)) for file in files}


def write(folder: Path, manifest: Manifest) -> None:
    """Make a folder a backup."""
    write_whole(folder / FILE, json.dumps(asdict(manifest), indent=1))


def read(folder: Path) -> Manifest:
    """The description of a backup.

    Raises LedgerError for a folder that is none, for a manifest that cannot be used, and for a warehouse newer than this code.
    """
    try:
        found = json.loads((folder / FILE).read_text())
        manifest = Manifest(**found | {"files": {name: (int(size), str(digest)) for name, (size, digest) in found["files"].items()}})
    except (FileNotFoundError, NotADirectoryError):
        raise LedgerError(f"{folder}: found no {FILE}, expected a complete backup: name a folder that make backup made") from None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise LedgerError(f"{folder / FILE} cannot be read ({error}): take another backup") from None
    if outside := [name for name in manifest.files if Path(name).is_absolute() or ".." in Path(name).parts]:
        raise LedgerError(f"{folder / FILE} names {outside[0]}, expected paths below the backup only: take another backup")
    if manifest.schema_version > schema.SCHEMA_VERSION:
        raise LedgerError(
            f"the backup has schema version {manifest.schema_version}, expected at most {schema.SCHEMA_VERSION}, the newest that this "
            "code knows: use the version of the project that made it"
        )
    return manifest


def copy_checked(source: Path, target: Path, expected: tuple[int, str]) -> None:
    """Copy a file of a backup. Raises LedgerError where it is missing, or is not the one that was backed up."""
    size, digest = expected
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with source.open("rb") as reading, target.open("wb") as writing:
            found = _hash_of(reading, writing)
    except FileNotFoundError:
        raise LedgerError(f"the backup lacks {source}, which its manifest names: take another backup") from None
    if found != digest:
        raise LedgerError(
            f"{source}: found {source.stat().st_size} bytes with SHA-256 {found[:12]}…, expected {size} bytes with {digest[:12]}…: "
            "the file was changed or damaged since the backup was made: take another backup"
        )


def _hash(file: Path) -> str:
    with file.open("rb") as reading:
        return hashlib.file_digest(reading, "sha256").hexdigest()


def _hash_of(reading: BinaryIO, writing: BinaryIO) -> str:
    digest = hashlib.sha256()
    while chunk := reading.read(_CHUNK):
        digest.update(chunk)
        writing.write(chunk)
    return digest.hexdigest()
