"""Standard input into a log file of bounded size: `python log_writer.py FILE >>FILE`. A full file becomes `FILE.1`.

It reads until every process that writes into the pipe has ended, and ignores requests to end: a part of the stack must find a reader for
as long as it runs. Where the disk is full it drops what comes, so that no part ever waits for it. Imports nothing of this project.
"""

import os
import signal
import sys

MOST_BYTES = 10 * 2**20
_READ = 2**16


def command() -> list[str]:
    """The command, before the file's name, of the process that writes what it is sent into a log file of bounded size."""
    return [sys.executable, "-ISE", os.path.abspath(__file__)]


def tail(file: str | os.PathLike[str], most: int) -> str:
    """The end of a log file, of at most so many bytes; raises OSError where it cannot be read."""
    with open(file, "rb") as log:
        log.seek(max(0, log.seek(0, os.SEEK_END) - most))
        return log.read().decode(errors="replace")


def copy(source: int, target: int, path: str, most: int = MOST_BYTES) -> None:
    """Write all that comes from `source` to `target`, the open file at a path; it and the one before stay below `most` bytes and a line.

    Whoever starts this opens the file, so that it is the one that was there then.
    """
    size = os.fstat(target).st_size
    while chunk := os.read(source, _READ):
        try:
            if size + len(chunk) > most and b"\n" in chunk:  # else a read has ended within a line
                head, end, tail = chunk.partition(b"\n")
                _write(target, head + end)
                target, size, chunk = _next(target, path), 0, tail
            _write(target, chunk)
            size += len(chunk)
        except OSError:
            size = most  # of what cannot be written nothing is kept back


def _next(target: int, path: str) -> int:
    """A new file, and the old one kept as `.1`; where the path is another writer's by now, the same file, empty."""
    try:
        is_ours = os.path.samestat(os.stat(path), os.fstat(target))
    except FileNotFoundError:
        is_ours = True
    if not is_ours:
        os.ftruncate(target, 0)
        return target
    if os.path.exists(path):
        os.replace(path, f"{path}.1")
    fresh = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.close(target)
    return fresh


def _write(target: int, data: bytes) -> None:
    while data:
        data = data[os.write(target, data) :]


if __name__ == "__main__":
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    copy(0, 1, sys.argv[1])
