"""Where people open a report: the page Quality in Airflow. Its address as a file is of use on the host alone."""

import re
from typing import Any

from spark_jobs.control.verdicts import report_page

_FILE = re.compile(r"file://\S*/data_docs/[^\s;,)]+")


def airflow_url(ti: Any) -> str:
    """Airflow's address, by the page of a task's log; empty where a task instance has none."""
    return str(getattr(ti, "log_url", "") or "").partition("/dags/")[0]


def decisions_url(airflow: str) -> str:
    """Where Airflow shows the evidence of a closed gate: the page Decisions, in Airflow's own frame."""
    return f"{airflow}/plugin/quality/quality/decisions"


def report_url(report: str | None, airflow: str) -> str | None:
    """Where Airflow's page Quality shows a report, of its address as a file; that address where it is no report of ours."""
    page = report_page(report)
    return f"{airflow}/quality/{page}" if page else report


def with_pages(text: str, ti: Any) -> str:
    """A text of a job with the pages of its reports in place of their files."""
    airflow = airflow_url(ti)
    return _FILE.sub(lambda found: report_url(found[0], airflow) or found[0], text) if airflow else text
