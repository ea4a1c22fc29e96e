"""The JVM of a running engine (spark_jobs/service/engine.py), as a job borrows it.

A job always is a process of its own; what it may borrow is the JVM. It asks on a socket below LEDGER_CHECKPOINTS, holds the connection
for as long as it uses the JVM, and says when it has done. The end of a connection without that word costs the JVM its life: what
the job was writing must not continue once its leases are free.
"""

import json
import logging
import os
import socket
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any

from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.settings import Settings

log = logging.getLogger(__name__)

FOLDER = Path("engine")  # below LEDGER_CHECKPOINTS
DONE = "done"
ANSWER_SECONDS = 30.0
_SOCKET = "socket"
_OF_COMPILERS = "spark.driver.extraJavaOptions"
_VERSIONS = ("pyspark", "delta-spark", "py4j")


class JvmLost(LedgerError):
    """The JVM of a job has ended: its own, or that of the engine which it had borrowed."""


class _Borrowed:
    """What this process has of an engine: leave to ask for one, and the connection to that whose JVM it uses."""

    def __init__(self) -> None:
        self.may_ask = False
        self.connection: socket.socket | None = None
        self.owner = 0


_borrowed = _Borrowed()


def address(folder: int) -> str:
    """The address of the engine's socket, by the descriptor of its open folder: an address is at most 107 bytes long."""
    return f"/proc/self/fd/{folder}/{_SOCKET}"


@contextmanager
def opened(settings: Settings) -> Iterator[int]:
    """The descriptor of the folder that holds the engine's socket. Raises FileNotFoundError where no engine has run."""
    folder = os.open(settings.run_folder / FOLDER, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield folder
    finally:
        os.close(folder)


def needs(master: str, conf: Mapping[str, str]) -> dict[str, str]:
    """What a JVM must be to be lent: libraries, master and settings of a driver, but for how it compiles."""
    kept = {name: value for name, value in conf.items() if name != _OF_COMPILERS}
    return {"master": master, **{name: version(name) for name in _VERSIONS}, **kept}


@contextmanager
def lent(is_wanted: bool) -> Iterator[None]:
    """Within, the session that `start_session` starts may be in the JVM of a running engine.

    Raises JvmLost for whatever fails within because its JVM ended.
    """
    _borrowed.may_ask = is_wanted
    try:
        yield
    except Exception as error:
        is_borrowed = _borrowed.connection is not None
        if _is_lost():
            _borrowed.connection = None
            ended = f"the engine (process {_borrowed.owner})" if is_borrowed else "the JVM"
            raise JvmLost(f"{ended} ended while this job ran in it: run it again; it continues from what the tables hold") from error
        _give_back()
        raise
    else:
        _give_back()
    finally:
        _borrowed.may_ask = False


def borrow(settings: Settings, job: str, wanted: Mapping[str, str], more: Collection[str]) -> Mapping[str, Any] | None:
    """Port and secret of a gateway into an engine's JVM; None where this job needs, or gets, a JVM of its own.

    It needs one where it has settings (`more`) that a session of its own cannot have, and where spark-submit has started one.
    """
    if not _borrowed.may_ask or "PYSPARK_GATEWAY_PORT" in os.environ or any(not name.startswith("spark.sql.") for name in more):
        return None
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(ANSWER_SECONDS)
    try:
        with opened(settings) as folder:
            connection.connect(address(folder))
        send(connection, {"job": job, "pid": os.getpid(), "needs": wanted})
        with connection.makefile() as lines:
            answer = receive(lines)
    except (OSError, ValueError) as error:
        if not isinstance(error, FileNotFoundError | ConnectionRefusedError):  # these two: none runs
            log.info("the engine does not answer (%s): this job starts a JVM of its own", error or type(error).__name__)
        connection.close()
        return None
    if "refused" in answer:
        log.info("the engine does not take this job (%s): it starts a JVM of its own", answer["refused"])
        connection.close()
        return None
    _borrowed.connection, _borrowed.owner = connection, int(answer["pid"])
    log.info("runs in the engine (process %d)", _borrowed.owner)
    return answer


def send(connection: socket.socket, message: Mapping[str, Any]) -> None:
    """One message, a line of JSON."""
    connection.sendall(f"{json.dumps(message)}\n".encode())


def receive(lines: IO[str]) -> dict[str, Any]:
    """The next message. Raises ValueError where there is none."""
    return dict(json.loads(lines.readline()))


def _is_lost() -> bool:
    """Whether the JVM that this process uses has ended, or the engine that lent it."""
    if _borrowed.connection is None and "pyspark" not in sys.modules:
        return False
    from py4j.protocol import Py4JError
    from pyspark import SparkContext

    if _borrowed.connection is not None:
        try:
            _borrowed.connection.settimeout(0)
            if not _borrowed.connection.recv(1, socket.MSG_PEEK):
                return True
        except BlockingIOError:
            pass
        except OSError:
            return True
    context = SparkContext._active_spark_context
    if context is None:  # of an engine: its JVM ended before this process had come in
        return _borrowed.connection is not None
    try:
        return bool(context._jsc.sc().isStopped())
    except (Py4JError, OSError):
        return True


def _give_back() -> None:
    """Say that this job has done, whatever came of it: nothing of it runs in the JVM any more."""
    connection, _borrowed.connection = _borrowed.connection, None
    if connection is None:
        return
    try:
        send(connection, {DONE: True})
    except OSError:
        log.info("the engine ended with this job")
    connection.close()
