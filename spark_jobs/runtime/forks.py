"""How a command starts: forked from the fork server of a running engine (fork_server.py), or else as a process that Python starts.

Both are processes with arguments, environment, folder, umask and streams of their own, and end alike. The first takes milliseconds, because
the libraries are imported already. It imports nothing but the standard library's small parts, so that who starts a job is light.
"""

import json
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from spark_jobs.runtime import fork_server

log = logging.getLogger(__name__)


class Forked:
    """A process that the fork server has forked for this one, and that it kills when this one ends. Used like subprocess.Popen."""

    def __init__(self, connection: socket.socket, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._connection, self._received = connection, b""

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, -9 for one that ended with the fork server; raises TimeoutError where it takes longer than `timeout` seconds."""
        self._connection.settimeout(timeout)
        while self.returncode is None:
            try:
                part = self._connection.recv(4096)
            except ConnectionError:
                part = b""
            self._received += part
            if self._received.endswith(b"\n"):
                self.returncode = int(json.loads(self._received)["exit"])
            elif not part:
                self.returncode = -signal.SIGKILL
        self._connection.close()
        return self.returncode

    def poll(self) -> int | None:
        """Its exit code; None while it runs."""
        try:
            return self.wait(0) if self.returncode is None else self.returncode
        except (TimeoutError, BlockingIOError):
            return None

    def send_signal(self, number: int) -> None:
        """Send it a signal; nothing happens where it has ended."""
        if self.returncode is None:
            try:
                self._connection.sendall(f"{json.dumps({'signal': int(number)})}\n".encode())
            except OSError:
                log.debug("it has ended")

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it, and all that it started and that is in its session."""
        self.send_signal(signal.SIGKILL)


def start(
    folder: Path,
    command: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    umask: int,
    stdin: int,
    stdout: int,
    stderr: int | None = None,
) -> "Forked | subprocess.Popen[bytes]":
    """Start a command, forked where it is `python -m MODULE ...` and an engine's folder has a fork server.

    The streams are descriptors, which stay open here; without `stderr`, errors go where this process writes its own.
    """
    errors = 2 if stderr is None else stderr
    python, dash, *module = command[:3]
    if (python, dash) == (sys.executable, "-m") and module:
        request = {"module": module[0], "words": command[3:], "environment": dict(env), "folder": str(cwd), "umask": umask}
        if forked := _fork(folder, request, [stdin, stdout, errors]):
            return forked
    return subprocess.Popen(command, cwd=cwd, env=env, umask=umask, stdin=stdin, stdout=stdout, stderr=errors)


def _fork(folder: Path, request: dict[str, Any], streams: Sequence[int]) -> Forked | None:
    """A fork of the server in a folder; None where there is none, or one of another Python."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(fork_server.ANSWER_SECONDS)
    try:
        number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            connection.connect(f"/proc/self/fd/{number}/{fork_server.SOCKET}")
        finally:
            os.close(number)
        socket.send_fds(connection, [b"\0"], list(streams))
        connection.sendall(f"{json.dumps({**request, 'libraries': fork_server.libraries()})}\n".encode())
        received = b""
        while not received.endswith(b"\n"):
            if not (part := connection.recv(1)):  # no more than the first line: the exit code may follow at once
                raise ConnectionError("no answer")
            received += part
        answer = json.loads(received)
        if "pid" in answer:
            return Forked(connection, answer["pid"])
        log.info("the engine's Python does not take this job (%s): it starts one of its own", answer["refused"])
    except (OSError, ValueError, KeyError) as error:
        if not isinstance(error, FileNotFoundError | ConnectionRefusedError):  # these two: none runs
            log.info("the engine's Python does not answer (%s): this job starts one of its own", error or type(error).__name__)
    connection.close()
    return None
