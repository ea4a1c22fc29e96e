"""Our schedules: times with a word for them, and days that run on request only. `include/plugins/timetables.py` lists them for Airflow.

Every part of Airflow imports this file with that plugin, so it imports next to nothing of ours.
"""

from datetime import timedelta
from typing import Any

from airflow.timetables.base import DagRunInfo, DataInterval, TimeRestriction, Timetable
from airflow.timetables.interval import CronDataIntervalTimetable
from airflow.timetables.simple import NullTimetable
from airflow.timetables.trigger import CronTriggerTimetable
from airflow.utils.types import DagRunType
from pendulum import DateTime

from include.orchestration.defaults import BY_HAND


class AtTimes(CronTriggerTimetable):
    """Times by UTC, in cron's words and in ours. The first is not at once when the DAG is switched on."""

    def __init__(self, cron: str, words: str) -> None:
        super().__init__(cron, timezone="UTC", run_immediately=timedelta(0))
        self._arguments = {"cron": cron, "words": words}

    @property
    def summary(self) -> str:
        """What Airflow's pages show as the schedule."""
        return self._arguments["words"]

    def serialize(self) -> dict[str, Any]:
        """Its arguments."""
        return self._arguments

    @classmethod
    def deserialize(cls, data: dict[str, Any]) -> Timetable:
        """The schedule of these arguments."""
        return cls(**data)


class OnRequest(NullTimetable):
    """No schedule, with a word for it: Airflow's pages show nothing for None."""

    @property
    def summary(self) -> str:
        """What Airflow's pages show as the schedule."""
        return "on request"


class DaysOnRequest(CronDataIntervalTimetable):
    """Days by UTC, which only a backfill asks for: a DAG that is to be back-filled needs a schedule with intervals.

    An end date in the DAG would end scheduled runs too, but take the tasks out of every run by hand with a later date.
    """

    def __init__(self) -> None:
        super().__init__("0 0 * * *", timezone="UTC")
        self.description = "Days, when they are asked for"

    @property
    def summary(self) -> str:
        """What Airflow's pages show as the schedule."""
        return "on request"

    def serialize(self) -> dict[str, Any]:
        """Nothing: there is only one such schedule."""
        return {}

    @classmethod
    def deserialize(cls, data: dict[str, Any]) -> Timetable:
        """The one such schedule."""
        return cls()

    def generate_run_id(self, *, run_type: DagRunType, run_after: DateTime, data_interval: DataInterval | None, **extra: Any) -> str:
        """As Airflow does, but so that a manual run can be told apart from another DAG's."""
        name = super().generate_run_id(run_type=run_type, run_after=run_after, data_interval=data_interval, **extra)
        return name.replace(DagRunType.MANUAL.value, BY_HAND, 1) if run_type == DagRunType.MANUAL else name

    def next_dagrun_info(self, *, last_automated_data_interval: DataInterval | None, restriction: TimeRestriction) -> DagRunInfo | None:
        """None for the scheduler, who asks without catchup as the DAG has it switched off; days for a backfill, which asks with it.

        A run may begin with its day, not with the next one: by this time Airflow names the run, and its pages list it.
        """
        if not restriction.catchup:
            return None
        found = super().next_dagrun_info(last_automated_data_interval=last_automated_data_interval, restriction=restriction)
        return found._replace(run_after=found.data_interval.start) if found and found.data_interval else found
