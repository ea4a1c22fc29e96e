"""Where Spark keeps what it spills, shuffles and caches on the local disk: for each process a folder of its own below the home.

Spark removes its files when it ends. What a process leaves that was killed is removed when the next one starts, and by `run maintenance`.
A lock that ends with its process says which folders are in use, also by processes of other containers on the same disk.
"""

import os
import shutil
import uuid
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path

from spark_jobs.runtime.settings import Settings

_LOCK = "lock"
_own: dict[Path, tuple[Path, int]] = {}  # the folder, and the descriptor of its lock, which stays open for as long as this process lives


def own(settings: Settings) -> Path:
    """The folder of this process, which the first call makes after it has removed those that dead processes left."""
    root = root_of(settings)
    if root not in _own:
        sweep(settings)
        folder, draft = root / (name := uuid.uuid4().hex), root / f".{name}"  # nobody sweeps a draft, which is not locked yet
        draft.mkdir(parents=True, mode=0o700)
        lock = os.open(draft / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        flock(lock, LOCK_EX | LOCK_NB)
        draft.rename(folder)
        _own[root] = folder, lock
    return _own[root][0]


def sweep(settings: Settings) -> int:
    """Remove the folders whose process is gone; returns how many."""
    dead = [folder for folder in root_of(settings).glob("[!.]*") if _is_dead(folder / _LOCK)]
    for folder in dead:
        shutil.rmtree(folder, ignore_errors=True)
    return len(dead)


def root_of(settings: Settings) -> Path:
    """Below which each process has its folder."""
    return settings.home / "scratch"


def _is_dead(lock: Path) -> bool:
    try:
        with open(lock, "rb") as held:
            flock(held, LOCK_EX | LOCK_NB)
            return True
    except FileNotFoundError:  # its removal was interrupted
        return True
    except OSError:  # held
        return False
