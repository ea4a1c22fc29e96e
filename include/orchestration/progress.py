"""Is there anything to do, and is the release up to date? Answered without a JVM, within a second."""

import logging
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.providers.standard.utils.skipmixin import SkipMixin
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowFailException

from include.orchestration.decisions import open_verdicts, waits_for
from include.orchestration.jobs import SparkJob
from include.orchestration.pages import with_pages
from spark_jobs.control.verdicts import read_decisions
from spark_jobs.lake.log_files import log_times
from spark_jobs.runtime.settings import Settings, read_settings

log = logging.getLogger(__name__)

_LOOK_AGAIN = timedelta(minutes=1)


def has_new_batches(force: bool, ti: Any = None) -> bool:
    """True when bronze holds batches that the newest release lacks, when the run is forced, or when bronze is stale.

    Stale: no new rows for longer than LEDGER_FRESHNESS_SECONDS. The run that is let through has bronze's gate record that as a
    failed expectation, once in as many seconds.

    Raises AirflowFailException, which is not retried, when a gate is closed and no decision lets it continue: it names the run that
    asks for the decision, or who decided to wait. A JVM need not start to find out.
    """
    from spark_jobs.releases.gates import closed_line  # not needed to parse a DAG

    settings = read_settings()
    if verdicts := open_verdicts(settings):
        raise AirflowFailException(with_pages(f"{waits_for(verdicts, read_decisions(settings))}: {closed_line(verdicts)}", ti))
    if force:
        log.info("Forced: every step runs, new batches or not.")
        return True
    work = due_work(settings, datetime.now(UTC))
    log.info("%s", work.why if work else "The newest release holds every bronze batch.")
    return work is not None


class TakeNewBatches(SparkJob, SkipMixin):
    """A Spark job that runs where `has_new_batches` says so. Elsewhere the run ends with it, before a JVM starts."""

    def execute(self, context: Context) -> None:
        """Run the job, or skip all tasks after it. Raises AirflowFailException as `has_new_batches` does."""
        ti, params = context["ti"], context.get("params") or {}
        if not has_new_batches(force=bool(params.get("force")), ti=ti):
            self.skip(ti, self.get_flat_relatives(upstream=False))  # raises, which ends the task well
        super().execute(context)


@dataclass(frozen=True)
class Work:
    """Why a run of the pipeline is due, and which release is the newest when it begins (0: none)."""

    why: str
    release: int


def due_work(settings: Settings, now: datetime, *, is_ending: bool = False) -> Work | None:
    """What a run would do now: release new batches, or record that bronze is stale. None where a closed gate waits for a person, too.

    While a run is `is_ending`, in its last task, which publishes its release: what the next one would do.
    """
    from spark_jobs.control.scope import unread_bronze
    from spark_jobs.releases.gates import is_overdue
    from spark_jobs.releases.releases import has_unreleased_batches, holds_what_silver_read, latest_release

    if open_verdicts(settings):
        return None
    release = latest_release(settings)
    number = release.release_id if release else 0
    if is_ending:
        if not unread_bronze(settings):
            return None
        next_number = number if holds_what_silver_read(settings, release) else number + 1  # its release is there already, or will be
        return Work("Bronze holds batches that silver has not read.", next_number)
    if has_unreleased_batches(settings):
        return Work("Bronze holds batches that the newest release lacks.", number)
    if is_overdue(settings, now):
        return Work(f"Bronze had no new rows for more than {settings.freshness_seconds} s: bronze's gate records it.", number)
    return None


class Look:
    """Asks for due work again and again. As long as no table changes, which costs next to nothing to see, the last answer holds."""

    def __init__(self) -> None:
        self._asked: tuple[Any, ...] = ()
        self._until = datetime.min.replace(tzinfo=UTC)
        self._found: Work | None = None

    def due_work(self, settings: Settings, now: datetime, *, is_ending: bool = False) -> Work | None:
        """As `due_work`; what comes by time alone, at most a minute late."""
        asked = (is_ending, *log_times(settings))
        if asked != self._asked or now >= self._until:
            self._found = due_work(settings, now, is_ending=is_ending)
            self._asked, self._until = asked, now + _LOOK_AGAIN
        return self._found


def refuse_stale_release(now: datetime) -> None:
    """Raise AirflowFailException when bronze has held rows for too long that the newest release, itself as old, lacks.

    Too long is LEDGER_RELEASE_STALE_MINUTES. After a quiet night the first new rows are no reason: their release is on its way.
    """
    from spark_jobs.releases.releases import latest_release, unreleased_since

    settings = read_settings()
    since = unreleased_since(settings)
    release = latest_release(settings)
    if since is None:
        log.info("The newest release holds every bronze batch.")
        return
    waited = now - max(since, release.released_at) if release else now - since
    limit = timedelta(minutes=settings.release_stale_minutes)
    if waited <= limit:
        log.info("For %d minutes bronze has held rows that the newest release lacks; the limit is %d.", _minutes(waited), _minutes(limit))
        return
    newest = f"release {release.release_id} of {release.released_at:%Y-%m-%dT%H:%MZ}" if release else "no release at all"
    verdicts = open_verdicts(settings)
    reason = waits_for(verdicts, read_decisions(settings)) if verdicts else "see the last runs of the DAG medallion; is it switched on?"
    raise AirflowFailException(
        f"the release is stale: found {newest}, and for {_minutes(waited)} minutes rows in bronze that it lacks; "
        f"expected a release within {_minutes(limit)} minutes: {reason}"
    )


def _minutes(time: timedelta) -> int:
    return int(time.total_seconds() // 60)
