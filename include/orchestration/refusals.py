"""A failed task of ours shows its own message: the stack trace that Airflow shows says nothing of a closed gate."""

from __future__ import annotations

import sys
from pathlib import Path
from traceback import walk_tb
from typing import TYPE_CHECKING, Any

import structlog
from airflow.sdk.exceptions import AirflowException, AirflowFailException

if TYPE_CHECKING:
    from structlog.typing import EventDict

_ROOT = Path(__file__).parents[2]
_DELIBERATE = (AirflowException, AirflowFailException)


def tell_in_words(_: object, __: str, event: EventDict) -> EventDict:
    """A processor of structlog: in place of the stack of an error that our code raised as Airflow's own, its message."""
    error = sys.exc_info()[1]
    if event.get("exc_info") and type(error) in _DELIBERATE and _is_ours(error):
        del event["exc_info"]
        event["event"] = str(error)
    return event


def expect(_: Any) -> None:
    """Before a task: have its log tell refusals in words."""
    processors: list[Any] = structlog.get_config()["processors"]
    if tell_in_words not in processors:
        processors.insert(0, tell_in_words)


def _is_ours(error: BaseException | None) -> bool:
    """Whether the error was raised in a file of this project, not in a library that it called."""
    files = [frame.f_code.co_filename for frame, _ in walk_tb(error.__traceback__)] if error else []
    return bool(files) and Path(files[-1]).is_relative_to(_ROOT) and "site-packages" not in files[-1]
