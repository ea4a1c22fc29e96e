"""Which process it is: its number alone may be another one's later."""

from collections.abc import Mapping
from typing import Any

import psutil


def identify(pid: int) -> dict[str, Any]:
    """A process, so that another one that later gets its number is not taken for it."""
    return {"pid": pid, "started": psutil.Process(pid).create_time()}


def find_process(identity: Mapping[str, Any]) -> psutil.Process | None:
    """The process of that number that started at that time, if it still runs; also one that is stopped."""
    try:
        process = psutil.Process(int(identity["pid"]))
        same = abs(process.create_time() - float(identity["started"])) < 1
        return process if same and process.status() != psutil.STATUS_ZOMBIE else None
    except psutil.Error:
        return None
