"""A Python process that has imported the libraries of the jobs, and forks each job from itself: a fork server.

An engine starts it (spark_jobs/service/engine.py) as a script: it never imports a module of this project, so each job loads the code as it
is then. It has one thread, no connection to a JVM and no open file of its own, so a fork of it is like a new process. A job gets the
arguments, environment, folder, umask and streams of who asks (forks.py), and a session of its own. Its end goes to who asked; where that
process ends first, the job is killed with all that is in its session.
"""

import atexit
import ctypes
import gc
import importlib
import json
import logging
import os
import runpy
import select
import signal
import socket
import sys
import sysconfig
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

log = logging.getLogger("ledger.fork_server")

SOCKET = "jobs"  # in the folder of the engine
ANSWER_SECONDS = 30.0
STREAMS = 3  # input, output and errors come with a request
# In this order: what Great Expectations can do with Spark and SQLAlchemy no gate uses, and it is slower with them.
LIBRARIES = (
    *("great_expectations", "pandas", "yaml", "psutil", "numpy", "pyarrow.compute", "pyarrow.dataset", "pyarrow.parquet", "deltalake"),
    *("fastavro", "py4j.java_gateway", "pyspark.sql.functions", "pyspark.sql.streaming", "delta.tables"),
)
_HIDDEN_FROM_GX = ("pyspark", "sqlalchemy")
# Threads that libraries would start when they are imported.
ONE_THREAD = {
    "OPENBLAS_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
    "_RJEM_MALLOC_CONF": "background_thread:false",
}
_END_WITH_PARENT = 1  # PR_SET_PDEATHSIG
_HELD_BACK = (signal.SIGTERM, signal.SIGINT)
_MOST_BYTES = 16 * 2**20  # of a request


def libraries() -> list[Any]:
    """Which Python this is, and when its libraries changed last: a job is forked only where both are those of who asks."""
    place = sysconfig.get_path("purelib")
    return [sys.executable, place, os.stat(place).st_mtime_ns]


def import_libraries(names: Sequence[str] = LIBRARIES) -> None:
    """Import what jobs use. Raises RuntimeError where that leaves a thread or an open file: a fork of those is not safe."""
    os.environ |= ONE_THREAD
    before = _open_files()
    hidden: dict[str, Any] = dict.fromkeys(_HIDDEN_FROM_GX)  # None in sys.modules: an import fails at once
    sys.modules.update(hidden)
    try:
        importlib.import_module(names[0])
    finally:
        for name in hidden:
            del sys.modules[name]
    for name in names[1:]:
        importlib.import_module(name)
    threads, opened = os.listdir("/proc/self/task"), _open_files() - before
    if len(threads) != 1 or opened:
        raise RuntimeError(f"the libraries started {len(threads) - 1} threads and opened {sorted(opened)}: no job can be forked")


def _open_files() -> set[str]:
    """What this process has open, but for the look at it."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            found.add(os.readlink(f"/proc/self/fd/{name}"))
        except FileNotFoundError:
            continue
    return found


class _Child:
    """A job that was forked: the connection of who asked, None once that has ended; and what it has sent so far."""

    def __init__(self, pid: int, connection: socket.socket) -> None:
        self.pid = pid
        self.connection: socket.socket | None = connection
        self.received = b""

    def kill(self) -> None:
        """End the job and all in its session."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:  # it has no session yet
            os.kill(self.pid, signal.SIGKILL)


class Server:
    """Forks jobs for whoever connects to a socket of the folder, until the input ends or SIGTERM comes; then waits for those that run."""

    def __init__(self, folder: str, own: list[Any]) -> None:
        self._children: list[_Child] = []
        self._own, self._is_asked_to_stop = own, False
        self._python_path = set(filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))
        self._listener: socket.socket | None = _listen(folder)
        self._wakeup, woken = socket.socketpair()
        self._woken = woken
        for each in (self._wakeup, woken):
            each.setblocking(False)
        signal.set_wakeup_fd(woken.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._note_stop)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def serve(self) -> dict[str, Any] | None:
        """Take requests. Returns in each job the request that it is to fulfil, and None at the end of the server."""
        while self._listener or self._children:
            asking = [child.connection for child in self._children if child.connection]
            own: list[Any] = [self._wakeup, *([self._listener, 0] if self._listener else [])]
            ready = select.select([*own, *asking], [], [])[0]
            if self._wakeup in ready:
                self._drain()
            self._reap()
            for child in [child for child in self._children if child.connection in ready]:
                self._obey(child)
            if self._listener and (self._is_asked_to_stop or (0 in ready and not os.read(0, 1))):
                self._listener.close()
                self._listener = None
            if self._listener and self._listener in ready and (request := self._answer(self._listener.accept()[0])):
                return request
        return None

    def _note_stop(self, *_: int | FrameType | None) -> None:
        self._is_asked_to_stop = True

    def _drain(self) -> None:
        with suppress(BlockingIOError):
            while self._wakeup.recv(4096):
                continue

    def _reap(self) -> None:
        for child in list(self._children):
            pid, status = os.waitpid(child.pid, os.WNOHANG)
            if pid:
                self._children.remove(child)
                if child.connection:
                    _send(child.connection, {"exit": os.waitstatus_to_exitcode(status)})
                    child.connection.close()

    def _obey(self, child: _Child) -> None:
        """Pass a signal on; who asked and has ended takes the job along."""
        assert child.connection
        try:
            received = child.connection.recv(4096)
        except OSError:
            received = b""
        if not received:
            child.connection.close()
            child.connection = None
            child.kill()
            return
        *lines, child.received = (child.received + received).split(b"\n")
        for number in (json.loads(line)["signal"] for line in lines):
            child.kill() if number == signal.SIGKILL else os.kill(child.pid, number)

    def _answer(self, connection: socket.socket) -> dict[str, Any] | None:
        """Fork a job for who has connected. Returns its request in the job, None in the server."""
        streams: list[int] = []
        try:
            connection.settimeout(ANSWER_SECONDS)
            _, streams, _, _ = socket.recv_fds(connection, 1, STREAMS)
            request = json.loads(_receive_line(connection))
            if request["libraries"] != self._own or libraries() != self._own:
                _send(connection, {"refused": "its Python or its libraries are others"})
                connection.close()
                return None
            signal.pthread_sigmask(signal.SIG_BLOCK, _HELD_BACK)  # until the job has the handlers of a new process
            try:
                server = os.getpid()
                pid = os.fork()
                if pid == 0:
                    try:
                        self._become(request, streams, connection, server)
                    except Exception:
                        log.exception("the job cannot start")
                        os._exit(1)  # nothing of the server may run on in it
                    return dict(request)
            finally:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, _HELD_BACK)
            self._children.append(_Child(pid, connection))
            connection.settimeout(None)
            _send(connection, {"pid": pid})
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.warning("whoever asked for a job did not come to it: %s: %s", type(error).__name__, error)
            connection.close()
        finally:
            for number in streams:
                os.close(number)
        return None

    def _become(self, request: dict[str, Any], streams: list[int], connection: socket.socket, server: int) -> None:
        """Make this fork like a new process that who asked has started."""
        os.setsid()
        ctypes.CDLL(None).prctl(_END_WITH_PARENT, signal.SIGKILL)
        if os.getppid() != server:
            os._exit(1)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for each in (self._listener, self._wakeup, self._woken, connection, *(child.connection for child in self._children)):
            if each:
                each.detach()  # or the end of the object would close what has its number by then
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        streams.clear()
        os.closerange(STREAMS, os.sysconf("SC_OPEN_MAX"))
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
        os.environ.clear()
        os.environ.update(request["environment"])
        time.tzset()
        os.umask(request["umask"])
        os.chdir(request["folder"])
        given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        first = [] if os.environ.get("PYTHONSAFEPATH") else [request["folder"]]
        sys.path[:] = [*first, *filter(None, given), *(place for place in sys.path if place not in self._python_path)]
        importlib.invalidate_caches()


def _listen(folder: str) -> socket.socket:
    """The socket on which requests come, for this user alone."""
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        address = f"/proc/self/fd/{number}/{SOCKET}"  # an address is at most 107 bytes long
        if os.path.lexists(address):  # of a server before
            os.unlink(address)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(address)
        os.chmod(address, 0o600)
        listener.listen()
        return listener
    finally:
        os.close(number)


def _receive_line(connection: socket.socket) -> bytes:
    received = bytearray()
    while not received.endswith(b"\n") and len(received) < _MOST_BYTES:
        part = connection.recv(65536)
        if not part:
            raise ValueError("the request is not complete")
        received += part
    return bytes(received)


def _send(connection: socket.socket, message: dict[str, Any]) -> None:
    with suppress(OSError):  # it has ended: `_obey` finds out
        connection.sendall(f"{json.dumps(message)}\n".encode())


def run(module: str, words: Iterable[str]) -> NoReturn:
    """What `python -m module words` does, in this process, which then ends.

    It ends as forks of multiprocessing do: to take apart what the libraries made, as Python does at its end, takes 0.15 s.
    """
    sys.argv, exit_code = [module, *words], 0
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if not isinstance(end.code, int):
            raise
        exit_code = end.code
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as Python does
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)


def main() -> None:
    """Serve the folder of the first argument, with other libraries if more arguments name some; in each job, run it."""
    sys.path = [place for place in sys.path if Path(place) != Path(__file__).parent]
    own = libraries()
    import_libraries(sys.argv[2:] or LIBRARIES)
    gc.collect()
    gc.freeze()  # no job goes through what the libraries made, and copies it
    os.umask(0o077)
    request = Server(sys.argv[1], own).serve()
    if request:
        run(request["module"], request["words"])


if __name__ == "__main__":
    main()
