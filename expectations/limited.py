"""A call with a limit: it runs in a process of its own, which is ended when the time is over.

A thread would not do: it cannot be ended, and a query that hangs inside a library may keep the whole interpreter waiting.
"""

import logging
import multiprocessing
import os
import threading
import time
from collections.abc import Callable
from logging.handlers import QueueHandler
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any, TypeVar

log = logging.getLogger(__name__)

_END_SECONDS = 5

T = TypeVar("T")


class NoAnswer(Exception):
    """The call did not end in time, or its process died; the message says what it was doing."""


def call_limited(seconds: float, function: Callable[..., T], *arguments: Any) -> T:
    """What `function(*arguments)` returns; all of it must be picklable, and the function one of a module.

    What it logs appears in this process. Raises NoAnswer when it takes longer than `seconds`, its process dies or it raises.
    """
    context = multiprocessing.get_context("spawn")  # a fork would share threads and locks of libraries in an unknown state
    reader, writer = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(writer, logging.getLogger().getEffectiveLevel(), function, *arguments), daemon=True)
    deadline, doing = time.monotonic() + seconds, "starting"
    process.start()
    writer.close()
    try:
        while reader.poll(max(0.0, deadline - time.monotonic())):
            kind, content = reader.recv()
            if kind == "answer":
                process.join(_END_SECONDS)
                answer: T = content
                return answer
            if kind == "error":
                raise NoAnswer(content)
            doing = content.getMessage()
            logger = logging.getLogger(content.name)
            if logger.isEnabledFor(content.levelno):
                logger.handle(content)
        raise NoAnswer(f"no answer within {seconds:g} s; last: {doing}")
    except EOFError:
        process.join(_END_SECONDS)
        raise NoAnswer(f"the process ended with exit code {process.exitcode}; last: {doing}") from None
    finally:
        process.kill()
        process.join(_END_SECONDS)
        reader.close()


class _Forwarder(QueueHandler):
    """Sends what is logged to the process that waits for the answer."""

    def __init__(self, writer: Connection) -> None:
        super().__init__(SimpleQueue())
        self._writer = writer

    def enqueue(self, record: logging.LogRecord) -> None:
        self._writer.send(("log", record))


def _work(writer: Connection, level: int, function: Callable[..., Any], *arguments: Any) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    logging.root.setLevel(level)
    logging.root.addHandler(_Forwarder(writer))
    logging.getLogger(__package__).setLevel(logging.DEBUG)  # tells what is going on, should the time be over
    try:
        answer = ("answer", function(*arguments))
    except Exception as error:
        log.debug("", exc_info=True)
        answer = ("error", f"{type(error).__name__}: {error}")
    writer.send(answer)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
