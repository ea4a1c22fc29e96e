"""A call with a limit: it runs in a process of its own, which is ended when the time is over.

A thread would not do: it cannot be ended, and a query that hangs inside a library may keep the whole interpreter waiting. Nor would a
fork of this process: it would share threads and locks of libraries in an unknown state. Where an engine runs, its fork server forks one.
"""

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from logging.handlers import QueueHandler
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

from spark_jobs.runtime import engine, forks
from spark_jobs.runtime.private import UMASK
from spark_jobs.runtime.settings import Settings

log = logging.getLogger(__name__)

_COMMAND = (sys.executable, "-m", __name__)

T = TypeVar("T")


class NoAnswer(Exception):
    """The call did not end in time, or its process died; the message says what it was doing."""


@contextmanager
def limited(settings: Settings, function: Callable[..., T]) -> Iterator[Callable[..., T]]:
    """A process of its own for one call of a function. It starts at once, and imports what the function needs.

    Gives `call(seconds, *arguments)`: what `function(*arguments)` returns; all of it must be picklable, and the function one of a module.
    What it logs appears in this process. Raises NoAnswer when it takes longer than `seconds`, its process dies or it raises.
    """
    (asked, asking), (reading, writing) = os.pipe(), os.pipe()
    question, answers = Connection(asking, readable=False), Connection(reading, writable=False)
    env, cwd = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}, Path.cwd()
    process = forks.start(settings.run_folder / engine.FOLDER, _COMMAND, cwd=cwd, env=env, umask=UMASK, stdin=asked, stdout=writing)
    os.close(asked)
    os.close(writing)

    def call(seconds: float, *arguments: Any) -> T:
        deadline, doing = time.monotonic() + seconds, "starting"
        try:
            question.send(arguments)
            while answers.poll(max(0.0, deadline - time.monotonic())):
                kind, content = answers.recv()
                if kind == "answer":
                    answer: T = content
                    return answer
                if kind == "error":
                    raise NoAnswer(content)
                doing = content.getMessage()
                logger = logging.getLogger(content.name)
                if logger.isEnabledFor(content.levelno):
                    logger.handle(content)
            raise NoAnswer(f"no answer within {seconds:g} s; last: {doing}")
        except (EOFError, BrokenPipeError):
            raise NoAnswer(f"the process ended with exit code {process.wait()}; last: {doing}") from None

    try:
        with suppress(BrokenPipeError):  # it has ended: the call will say so
            question.send((logging.getLogger().getEffectiveLevel(), function))
        yield call
    finally:
        process.kill()
        process.wait()
        question.close()
        answers.close()


class _Forwarder(QueueHandler):
    """Sends what is logged to the process that waits for the answer."""

    def __init__(self, writer: Connection) -> None:
        super().__init__(SimpleQueue())
        self._writer = writer

    def enqueue(self, record: logging.LogRecord) -> None:
        self._writer.send(("log", record))


def _work() -> None:
    """Answer the one call that comes on the input, to the output; end when the input does."""
    question, writer = Connection(os.dup(0), writable=False), Connection(os.dup(1), readable=False)
    os.dup2(2, 1)  # what a library prints is no answer
    try:
        level, function = question.recv()
        arguments = question.recv()
    except EOFError:  # nobody calls
        return
    threading.Thread(target=_end_with_caller, args=(question,), daemon=True).start()
    logging.root.setLevel(level)
    logging.root.addHandler(_Forwarder(writer))
    logging.getLogger("expectations").setLevel(logging.DEBUG)  # tells what was being done, should the time be over
    try:
        answer = ("answer", function(*arguments))
    except Exception as error:
        log.debug("", exc_info=True)
        answer = ("error", f"{type(error).__name__}: {error}")
    writer.send(answer)


def _end_with_caller(question: Connection) -> None:
    try:
        question.recv()
    except EOFError:
        os._exit(1)


if __name__ == "__main__":
    _work()
