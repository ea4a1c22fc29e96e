"""A real S3 server for the tests of a module, and a door in front of it that can be slow, hold a request, or turn requests away
as a busy store does."""

import json
import multiprocessing
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import Any
from urllib.parse import urlsplit

import fsspec

from include.stack import s3
from include.stack.shutdown import stop_parts
from spark_jobs.runtime import objects

_BUSY = b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_BUSY_SECONDS = 8  # longer than clients of Python repeat a request
_BLOCK = 2**16
_spawn = multiprocessing.get_context("spawn")


class Door:
    """Passes connections on to the server. A process of its own: delta-rs lets no other thread of its process run while it waits."""

    def __init__(self, url: str) -> None:
        self._busy_until, self._pause, self._turned_away, self._holding = (_spawn.Value("d", 0.0) for _ in range(4))
        self._trigger: Any = _spawn.Array("c", 500)
        self._held: Any = _spawn.Array("c", 500)
        address, (here, there) = urlsplit(url), _spawn.Pipe()
        shared = (self._busy_until, self._pause, self._turned_away, self._holding, self._trigger, self._held)
        self._process = _spawn.Process(target=_serve, args=((address.hostname, address.port), shared, there), daemon=True)
        self._process.start()
        there.close()  # so that an end of the process is noticed here
        self.url = f"http://127.0.0.1:{here.recv()}"

    @property
    def turned_away(self) -> int:
        """How many requests were answered by 503."""
        return int(self._turned_away.value)

    def be_busy_for(self, seconds: float) -> None:
        """Answer 503 from now on for so many seconds; returns at once."""
        self._busy_until.value = time.time() + seconds

    def be_busy_at(self, file: Path) -> None:
        """Answer 503 for some seconds from the moment in which a file is to be written."""
        self._trigger.value = _put(file)

    def hold_at(self, file: Path) -> None:
        """Keep the next request by which a file is to be written, as a network does that is slow for it alone, until `let_go`."""
        self._held.value = _put(file)

    @property
    def is_holding(self) -> bool:
        """Whether such a request has come."""
        return bool(self._holding.value)

    def let_go(self) -> None:
        """Pass on what is held."""
        self._holding.value = 0.0

    def be_slow(self, pause: float) -> None:
        """Let each block of bytes wait for so many seconds; 0: no more."""
        self._pause.value = pause

    def close(self) -> None:
        """Let nobody in any more."""
        self._process.kill()
        self._process.join()


def _put(file: Path) -> bytes:
    """How a request begins by which a file is to be written."""
    return f"PUT {str(file).removeprefix('s3a:/')} ".encode()


def _serve(server: tuple[str, int], shared: tuple[Any, ...], told: Any) -> None:
    busy_until, pause, turned_away, holding, trigger, held = shared

    class Visitor(BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError), socket.create_connection(server) as behind:
                back = threading.Thread(target=self._pass_on, args=(behind, self.request), daemon=True)
                back.start()
                self._pass_on(self.request, behind)
                back.join()

        def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
            """Until either side closes. In a busy time a request is answered, and the connection ends."""
            with suppress(OSError):
                while block := source.recv(_BLOCK):
                    if trigger.value and block.startswith(trigger.value):
                        busy_until.value, trigger.value = time.time() + _BUSY_SECONDS, b""
                    if time.time() < busy_until.value:
                        if source is self.request:
                            turned_away.value += 1
                            self.request.sendall(_BUSY)
                        break
                    if held.value and block.startswith(held.value):
                        holding.value, held.value = 1.0, b""
                        while holding.value:
                            time.sleep(0.05)
                    time.sleep(pause.value)
                    target.sendall(block)
            for each in (source, target):
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    class Server(ThreadingTCPServer):
        daemon_threads = True
        request_queue_size = 100

    with Server(("127.0.0.1", 0), Visitor) as serving:
        told.send(serving.server_address[1])
        serving.serve_forever()


@contextmanager
def running_s3(home: Path) -> Iterator[tuple[Door, dict[str, str]]]:
    """The door of a server, and the variables by which clients reach it through that; both are stopped behind the block."""
    objects.register()
    fsspec.get_filesystem_class("s3a").clear_instance_cache()  # clients of another test's server, which had a bucket of the same name
    try:
        if started := s3.launch(home):
            s3.wait(home, started)
        door = Door(s3.own_url(home) or "")
        try:
            keys = json.loads(s3.keys_file(home).read_text())
            yield door, {**keys, "AWS_ENDPOINT_URL": door.url, "AWS_REGION": s3.REGION, "AWS_ALLOW_HTTP": "true"}
        finally:
            door.close()
    finally:
        stop_parts(home, None, lambda _: None)


def in_storage(name: str) -> dict[str, str]:
    """The settings of a warehouse in the bucket, whose folder has this name."""
    places = {"LEDGER_WAREHOUSE": "warehouse", "LEDGER_CHECKPOINTS": "checkpoints"}
    return {"LEDGER_HOSTS": "several", **{setting: f"s3a://{s3.BUCKET}/{name}/{place}" for setting, place in places.items()}}
