"""Work that a process which died left unfinished: how a job detects it, and finishes it before it builds on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_jobs.runtime.settings import Settings

T = TypeVar("T")


@dataclass(frozen=True)
class Finisher:
    """The run that finishes what another one left; `session` is called only where Spark is needed."""

    run_id: str
    session: Callable[[], SparkSession]


@dataclass(frozen=True)
class Unfinished:
    """One kind of work that can be left unfinished.

    `pending` says, without Spark, whether it is. `finish` does the rest, once however often it dies, or raises LedgerError that says
    which command does. It takes the leases of all that the work writes; with `is_under_lease` the caller holds them already.
    """

    pending: Callable[[Settings], bool]
    finish: Callable[[Settings, Finisher], None]
    is_under_lease: bool = False


@contextmanager
def lock_when_finished(
    settings: Settings, lock: Callable[[], AbstractContextManager[T]], kinds: Sequence[Unfinished], by: Finisher
) -> Iterator[T]:
    """What `lock` gives, with no work of these kinds unfinished; work that appears while this waits for the lock is finished first.

    Kinds that are finished under the caller's leases are left to the caller (`finish_under_lease`).
    """
    first = [kind for kind in kinds if not kind.is_under_lease]
    while True:
        for kind in first:
            if kind.pending(settings):
                kind.finish(settings, by)
        with lock() as locked:
            if not any(kind.pending(settings) for kind in first):
                yield locked
                return


def finish_under_lease(settings: Settings, kinds: Sequence[Unfinished], by: Finisher) -> None:
    """Finish what is finished under leases, which the caller holds."""
    for kind in kinds:
        if kind.is_under_lease and kind.pending(settings):
            kind.finish(settings, by)
