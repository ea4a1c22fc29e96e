"""The tasks of `backfill_days`: which days a run rebuilds, and the Spark job that does it.

What a person typed is parsed here and again by the job. It reaches the job as arguments of their own, never through a template or a shell.
"""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.providers.standard.utils.skipmixin import SkipMixin
from airflow.sdk import Context, Param
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from include.orchestration.decisions import live_verdicts, open_verdicts, waits_for
from include.orchestration.jobs import SparkJob
from spark_jobs.control import backfills
from spark_jobs.control.verdicts import read_decisions
from spark_jobs.lake.tables import REBUILT
from spark_jobs.runtime.errors import SettingsError
from spark_jobs.runtime.settings import read_settings
from spark_jobs.runtime.times import midnight, parse_time, to_text

log = logging.getLogger(__name__)

EARLIEST = datetime(2000, 1, 1, tzinfo=UTC)  # the rule event_time_plausible: silver has nothing older
LONGEST = timedelta(days=3660)
DECISION_POLL = timedelta(minutes=1)
DAY = timedelta(days=1)

# A date, or a time with or without a zone. The look-ahead is the end of the text; `$` would let a line end follow.
MOMENT = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?(Z|[+-][0-9]{2}:[0-9]{2})?)?(?![\s\S])"


def time_param(title: str, description: str) -> Param:
    """A param that is a date or a time, and empty unless a run is started by hand."""
    return Param(None, type=["null", "string"], format="date-time", pattern=MOMENT, maxLength=40, title=title, description=description)


def tables_param() -> Param:
    """A param that is a choice of the tables that can be rebuilt; none chosen means all."""
    return Param(
        [],
        type=["null", "array"],
        items={"type": "string", "enum": list(REBUILT)},
        examples=list(REBUILT),
        uniqueItems=True,
        title="Tables",
        description="Rebuild only these; none chosen: all. Gold always follows changes in silver.",
    )


@dataclass(frozen=True)
class Range:
    """What a rebuild takes: event times in [start, end), some tables (none: all), and whether it is a dry run."""

    start: datetime
    end: datetime
    tables: tuple[str, ...] = ()
    dry_run: bool = False

    def arguments(self) -> list[str]:
        """The command line of the job `backfill`."""
        chosen = ["--tables", *self.tables] if self.tables else []
        return [
            "backfill",
            f"--start={to_text(self.start)}",
            f"--end={to_text(self.end)}",
            *chosen,
            "--dry-run" if self.dry_run else "--publish",
        ]

    def to_xcom(self) -> dict[str, Any]:
        """As XCom keeps it."""
        return {"start": to_text(self.start), "end": to_text(self.end), "tables": list(self.tables), "dry_run": self.dry_run}

    def __str__(self) -> str:
        return f"{to_text(self.start)} to {to_text(self.end)} of {', '.join(self.tables) or 'all tables'}"


def read_range(params: Mapping[str, Any]) -> Range:
    """The range that a run by hand, or an XCom of `find_days`, asks for.

    Raises AirflowFailException, in one line, when it cannot be used; Airflow's form lets nothing else through than this does.
    """
    if not params.get("start") or not params.get("end"):
        raise AirflowFailException(
            "found no start and end, expected both: trigger again and fill them in, or use the Backfill form, which asks for whole days"
        )
    start, end = _moment("start", params["start"]), _moment("end", params["end"])
    if start >= end:
        raise AirflowFailException(f"found start {to_text(start)} and end {to_text(end)}, expected a start before the end")
    if start < EARLIEST:
        raise AirflowFailException(f"found start {to_text(start)}, expected {to_text(EARLIEST)} or later: silver holds nothing older")
    if end - start > LONGEST:
        raise AirflowFailException(f"found a range of {(end - start).days} days, expected at most {LONGEST.days}: rebuild it in parts")
    return Range(start, end, *read_wanted(params))


def read_wanted(params: Mapping[str, Any]) -> tuple[tuple[str, ...], bool]:
    """Tables and dry_run of a form; raises AirflowFailException for what is no such thing."""
    tables, dry_run = params.get("tables") or [], params.get("dry_run") or False
    if not isinstance(tables, list) or not isinstance(dry_run, bool) or not set(map(str, tables)) <= set(REBUILT):
        raise AirflowFailException(
            f"found tables or dry_run that are not allowed, expected tables among {', '.join(REBUILT)}; true or false"
        )
    return tuple(name for name in REBUILT if name in tables), dry_run


def find_range(run: Any, params: Mapping[str, Any]) -> Range:
    """The range that a run rebuilds: what its params ask for, or, of a run of a backfill, its own day.

    A run of a backfill asks for its day, so that whichever run comes first rebuilds neighbouring days together (control/backfills.py).
    Raises AirflowFailException when nothing usable is asked for.
    """
    if run.run_type != "backfill" or run.logical_date is None:
        return read_range(params)
    if params.get("start") or params.get("end"):
        raise AirflowFailException("found start or end, expected none: the dates of the Backfill form are the range; cancel, and ask again")
    start = midnight(run.logical_date.date())
    asked = Range(start, start + DAY, *read_wanted(params))
    if not asked.dry_run:
        backfills.ask(read_settings(), asked.start, asked.end, asked.tables or REBUILT, run.run_id)
    return asked


class Rebuild(SparkJob, SkipMixin):
    """Rebuilds the range of `find_days`, unless another run has done it meanwhile. Then, and after a dry run, later tasks are skipped.

    While `medallion` waits for a decision about live rows, so does the rebuild, without a process: no step may begin before it.
    """

    def execute(self, context: Context, event: Any = None) -> None:
        """Run the job; raises AirflowFailException for exit codes that no other try can change."""
        ti = context["ti"]
        asked = read_range(ti.xcom_pull(task_ids="find_days") or {})
        if other := backfills.done_by(read_settings(), context.get("run_id", "")):
            self.log.info("The run %s has rebuilt this day with its own: nothing to do.", other)
            self.skip(ti, self.get_flat_relatives(upstream=False))  # raises, which ends the task well
        self.application_args = asked.arguments()
        if not asked.dry_run:
            self._wait_for_decision()
        try:
            super().execute(context)
        except AirflowException:
            self._wait_for_decision()  # a gate has closed for live rows meanwhile: the steps that are done stay done
            raise
        if asked.dry_run:
            self.log.info("A dry run: nothing was changed, judged or released.")
            self.skip(ti, self.get_flat_relatives(upstream=False))

    def _wait_for_decision(self) -> None:
        """Defer while a gate of bronze or silver is closed for rows of a run of `medallion`, which asks about them itself."""
        from airflow.providers.standard.triggers.temporal import TimeDeltaTrigger  # not needed to parse a DAG

        settings = read_settings()
        live = live_verdicts(open_verdicts(settings))
        if live:
            self.log.info("Live rows come first: %s. The rebuild continues by itself.", waits_for(live, read_decisions(settings)))
            self.defer(trigger=TimeDeltaTrigger(DECISION_POLL), method_name="execute")


def report_release() -> None:
    """Log the release that readers see: `rebuild` has judged and released each step that changed anything."""
    from spark_jobs.releases.releases import latest_release  # not needed to parse a DAG

    release = latest_release(read_settings())
    found = f"release {release.release_id} of {release.released_at:%Y-%m-%dT%H:%M:%SZ}" if release else "no release yet"
    log.info("Readers see %s. Every step of the rebuild was judged and released.", found)


def _moment(name: str, text: Any) -> datetime:
    try:
        if not isinstance(text, str) or not re.match(MOMENT, text):
            raise ValueError
        return parse_time(text, name)
    except (ValueError, SettingsError):
        raise AirflowFailException(
            f"the {name} cannot be read, expected a date or a time by ISO 8601, such as 2024-05-01 or 2024-05-01T12:30Z "
            "(UTC unless it has a zone)"
        ) from None
