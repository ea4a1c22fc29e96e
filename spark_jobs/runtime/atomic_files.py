"""Files that others read while they are written: they see what was there before, or all of what is new."""

import os
from pathlib import Path


def write_whole(file: Path, text: str) -> None:
    """Replace a file that only its owner can read, whole or not at all, also when the machine fails; creates its folder."""
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as output:
        output.write(text)
        output.flush()
        os.fsync(output.fileno())
    os.replace(draft, file)
