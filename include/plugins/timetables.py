"""The Airflow plugin that makes our schedules known: Airflow reads a DAG's schedule back from its database by this list."""

from airflow.plugins_manager import AirflowPlugin

from include.orchestration.timetable import AtTimes, DaysOnRequest, OnRequest

TIMETABLES = [AtTimes, DaysOnRequest, OnRequest]


class TimetablesPlugin(AirflowPlugin):
    """What Airflow finds here."""

    name = "timetables"
    timetables = TIMETABLES
