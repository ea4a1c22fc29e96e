"""Files that others read while they are written: they see what was there before, or all of what is new."""

import os
from pathlib import Path


def write_whole(file: Path, text: str) -> None:
    """Replace a file, all of it or nothing, also when the machine fails; its folder is made where it is missing."""
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    with draft.open("w") as output:
        output.write(text)
        output.flush()
        os.fsync(output.fileno())
    os.replace(draft, file)
