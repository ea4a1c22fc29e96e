"""The log of a part of the stack: of bounded size while the part runs, no line lost, and nobody waits for it."""

import os
import select
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from include.stack.processes import find_all, start, stop
from spark_jobs.service import log_writer
from spark_jobs.service.log_writer import MOST_BYTES, copy

LINES = "for number in range({count}): print('x' * 90, number)"


def sent(lines: list[bytes], log: Path, most: int) -> None:
    """What the writer makes of lines that come through a pipe."""
    source, target = os.pipe()
    if os.fork() == 0:
        os.close(source)
        for line in lines:
            os.write(target, line)
        os._exit(0)
    os.close(target)
    with open(log, "ab", buffering=0) as file:
        copy(source, os.dup(file.fileno()), str(log), most)
    os.close(source)
    os.wait()


def test_a_part_that_never_ends_has_a_log_of_bounded_size(tmp_path: Path) -> None:
    """90 days of a part that writes 2 MB a day, without any restart."""
    count = 90 * 2 * 2**20 // 100
    log = tmp_path / "part.log"
    part = start(tmp_path, "part", [sys.executable, "-c", LINES.format(count=count)], dict(os.environ), log)
    assert part.child is not None
    assert part.writer is not None
    assert part.child.wait(60) == 0
    assert part.writer.wait(60) == 0
    files = sorted(tmp_path.glob("part.log*"))
    assert files == [log, tmp_path / "part.log.1"]
    assert all(0 < file.stat().st_size < MOST_BYTES + 100 for file in files)
    text = (files[1].read_text() + files[0].read_text()).splitlines()
    numbers = [int(line.split()[1]) for line in text]
    assert numbers == list(range(count - len(numbers), count))  # the newest, without a gap, lines whole


def test_lines_are_whole_and_in_order(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    sent([b"%04d\n" % number for number in range(100)], log, 1000)
    assert (tmp_path / "a.log.1").exists() is False
    assert log.read_bytes() == b"".join(b"%04d\n" % number for number in range(100))
    sent([b"next\n"], log, 400)
    assert (tmp_path / "a.log.1").read_bytes().endswith(b"0099\nnext\n")


def test_a_part_does_not_wait_for_a_log_that_cannot_be_written(tmp_path: Path) -> None:
    """As where the disk is full: it goes on to its end."""
    log = tmp_path / "a.log"
    log.symlink_to("/dev/full")
    part = subprocess.Popen([sys.executable, "-c", LINES.format(count=20_000)], stdout=subprocess.PIPE)
    assert part.stdout is not None
    with part.stdout as output, log.open("wb") as file:
        writer = subprocess.Popen([*log_writer.command(), str(log)], stdin=output, stdout=file)
    assert part.wait(60) == 0
    assert writer.wait(60) == 0
    assert Path("/dev/full").is_char_device()


def test_the_writer_outlives_a_request_to_stop_the_part(tmp_path: Path) -> None:
    """What a part says while it ends is in its log; the writer ends by itself."""
    code = "import signal, sys, time\nsignal.signal(15, lambda *_: sys.exit('last words'))\nprint('ready', flush=True)\ntime.sleep(600)"
    part = start(tmp_path, "part", [sys.executable, "-c", code], dict(os.environ), tmp_path / "part.log")
    assert part.writer is not None
    while "ready" not in part.log.read_text():
        os.sched_yield()
    assert find_all(tmp_path) == [part.process]
    part.writer.terminate()
    assert stop(find_all(tmp_path), patience=20) == []
    assert part.writer.wait(20) == 0
    assert part.log.read_text() == "ready\nlast words\n"


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_writer_whose_file_another_one_has_taken_leaves_it_alone(tmp_path: Path, is_gone: bool) -> None:
    """A child of the part before still writes, when the part was started again."""
    log = tmp_path / "a.log"
    source, target = os.pipe()
    code = f"from spark_jobs.service.log_writer import copy; copy(0, 1, {str(log)!r}, 50)"
    with log.open("ab") as file:
        writer = subprocess.Popen([sys.executable, "-c", code], stdin=source, stdout=file)
    os.close(source)
    os.write(target, b"one\n")
    while not (log.exists() and log.read_text() == "one\n"):
        os.sched_yield()
    log.replace(tmp_path / "a.log.1")
    if not is_gone:
        log.write_text("another\n")
    for _ in range(100):
        os.write(target, b"old old old\n")
    os.close(target)
    assert writer.wait(20) == 0
    if not is_gone:
        assert log.read_text() == "another\n"
    assert (tmp_path / "a.log.1").stat().st_size < 2**16


def test_a_line_that_comes_in_pieces_is_in_one_file(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(b"x" * 98 + b"\n")
    source, sink = os.pipe()
    with open(log, "ab", buffering=0) as file:
        writer = threading.Thread(target=copy, args=(source, os.dup(file.fileno()), str(log), 100))
        writer.start()
        for piece in (b"one ", b"line\n", b"next\n"):
            os.write(sink, piece)
            while select.select([source], [], [], 0)[0]:
                pass
        os.close(sink)
        writer.join(10)
    os.close(source)
    assert (tmp_path / "a.log.1").read_bytes() == b"x" * 98 + b"\none line\n"
    assert log.read_bytes() == b"next\n"
