"""Files that others read while they are written: they see what was there before, or all of what is new."""

import os
import re
from contextlib import suppress
from pathlib import Path

from spark_jobs.runtime import storage

_DRAFT = re.compile(r"\..+\.\d+")


def write_whole(file: Path, text: str) -> None:
    """Replace a file that only its owner can read, whole or not at all, also when the machine fails; creates its folder."""
    if storage.is_remote(file):
        file.write_text(text)
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as output:
        output.write(text)
        output.flush()
        os.fsync(output.fileno())
    os.replace(draft, file)


def remove_drafts(folder: Path, before: float) -> int:
    """Remove the drafts below a folder of processes that died as they wrote, last changed before a time in seconds; returns how many."""
    removed = 0
    for file in folder.rglob(".*"):
        with suppress(FileNotFoundError):  # its writer was slow, and is done
            if _DRAFT.fullmatch(file.name) and file.is_file() and file.stat().st_mtime < before:
                file.unlink()
                removed += 1
    return removed
