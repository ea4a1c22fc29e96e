"""A schedule of days that never starts a run of its own accord. `include/plugins/timetables.py` makes it known to Airflow.

Every part of Airflow imports this file with that plugin, so it imports next to nothing of ours.
"""

from typing import Any

from airflow.timetables.base import DagRunInfo, DataInterval, TimeRestriction, Timetable
from airflow.timetables.interval import CronDataIntervalTimetable
from airflow.utils.types import DagRunType
from pendulum import DateTime

from include.orchestration.defaults import BY_HAND


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
        """As Airflow does, but a manual run can be told apart from one of another DAG."""
        name = super().generate_run_id(run_type=run_type, run_after=run_after, data_interval=data_interval, **extra)
        return name.replace(DagRunType.MANUAL.value, BY_HAND, 1) if run_type == DagRunType.MANUAL else name

    def next_dagrun_info(self, *, last_automated_data_interval: DataInterval | None, restriction: TimeRestriction) -> DagRunInfo | None:
        """None for the scheduler, who asks without catchup as the DAG has it switched off; days for a backfill, which asks with it."""
        if not restriction.catchup:
            return None
        return super().next_dagrun_info(last_automated_data_interval=last_automated_data_interval, restriction=restriction)
