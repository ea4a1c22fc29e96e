"""What the stack remembers of a LEDGER_HOME: ports, secrets, and the addresses that it tells the jobs.

Everything lies in `$LEDGER_HOME/stack`. Secrets are files of mode 0600 that hold nothing but the secret.
"""

import json
import os
import random
import secrets
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path

from spark_jobs.runtime.atomic_files import write_whole
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.private import close_home
from spark_jobs.runtime.settings import ROOT, endpoints_file

HOST = "127.0.0.1"
# Below the ports that the kernel hands to outgoing connections, so that a remembered port is rarely taken meanwhile.
PORTS = range(15000, 32000)


def home_of(environ: Mapping[str, str] = os.environ) -> Path:
    """The LEDGER_HOME alone: `down` and `status` must find it also when another setting cannot be read."""
    text = environ.get("LEDGER_HOME", "").strip()
    return Path(text or ROOT / ".ledger").expanduser().absolute()


def stack_folder(home: Path) -> Path:
    """The folder of the stack, made if it is missing."""
    folder = home / "stack"
    close_home(home)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LedgerError(f"LEDGER_HOME {home} cannot be used ({error.strerror}): choose a folder that you may write to") from None
    return folder


@contextmanager
def only_one(home: Path, report: Callable[[str], None]) -> Iterator[None]:
    """Let one `up` or `down` of a home work at a time; the kernel frees the lock however the holder ends."""
    with open(stack_folder(home) / ".lock", "w") as lock:
        try:
            flock(lock, LOCK_EX | LOCK_NB)
        except BlockingIOError:
            report(f"waiting for another up or down of {home}")
            flock(lock, LOCK_EX)
        yield


def port_is_free(port: int) -> bool:
    """Whether a server could listen on this loopback port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def ports_of(home: Path) -> dict[str, int]:
    """The ports that this home remembers, by name of the listener."""
    try:
        return {name: int(port) for name, port in json.loads((home / "stack/ports.json").read_text()).items()}
    except (OSError, ValueError, AttributeError):
        return {}


def claim_port(home: Path, name: str, wished: int | None = None) -> int:
    """The port of a listener that is about to start, remembered: the wished one, else the one before if free, else a free one."""
    known = ports_of(home)
    port = wished or known.get(name)
    if port is None or not (wished or port_is_free(port)):
        port = next(p for p in random.sample(PORTS, len(PORTS)) if p not in known.values() and port_is_free(p))
    if known.get(name) != port:
        write_whole(stack_folder(home) / "ports.json", json.dumps({**known, name: port}))
    return port


def secret(file: Path, make: Callable[[], str] = lambda: secrets.token_urlsafe(24)) -> str:
    """The secret in a file; made, and kept there, the first time."""
    if not file.exists():
        write_whole(file, make())
    return file.read_text()


def set_outside(environ: Mapping[str, str], name: str, own: str | None) -> str | None:
    """The outside service that a variable names; None when it is unset, blank or names the stack's own service."""
    value = environ.get(name, "").strip()
    return None if not value or value == own else value


def write_endpoints(home: Path, addresses: Mapping[str, str]) -> None:
    """Tell jobs, producers and readers of this home where the services listen."""
    write_whole(endpoints_file(home), json.dumps(dict(addresses), indent=2) + "\n")


def remove_endpoints(home: Path) -> None:
    """Forget the addresses: nothing listens there any more."""
    endpoints_file(home).unlink(missing_ok=True)
