"""The DAG backfill_days: its schedule, its params, what its runs ask for, and what reaches the job."""

from datetime import UTC, date, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.models.dagrun import DagRun
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException, ParamValidationError
from airflow.serialization.serialized_objects import DagSerialization
from airflow.utils.types import DagRunType
from pendulum import DateTime

from include.orchestration.backfill import read_range
from include.orchestration.defaults import NO_BACKFILL, dag_of_run
from spark_jobs import control
from spark_jobs.lake.tables import BACKFILLS, GOLD, REBUILT
from spark_jobs.runtime.settings import Settings

FIRST = date(2024, 5, 1)
HOSTILE = ["'; DROP TABLE x", "$(id)", "{{ 7 * 7 }}", "../../etc/passwd", "2024-05-01\n", "٢٠٢٤-05-01", "--tables=x", "x" * 1_000_000]
AFTER = {"rebuild", "released", "ask_for_decision"}


@pytest.fixture
def dag(dag_bag: DagBag) -> DAG:
    return dag_bag.dags["backfill_days"]


def params(**given: Any) -> dict[str, Any]:
    return {"start": None, "end": None, "tables": [], "dry_run": False} | given


def asked_by(dag: DAG, day: date | None, **given: Any) -> dict[str, Any]:
    """What `find_days` of a run of a backfill gives, or of one by hand where there is no day."""
    moment = datetime(day.year, day.month, day.day, tzinfo=UTC) if day else None
    run = SimpleNamespace(run_type="backfill" if day else "manual", run_id=f"backfill__{day}", logical_date=moment)
    find_days: Any = dag.get_task("find_days")
    return dict(find_days.python_callable(params=params(**given), dag_run=run))


# The schedule


def test_a_backfill_finds_its_days_and_nothing_runs_by_itself(dag: DAG) -> None:
    stored = DagSerialization.from_dict(DagSerialization.to_dict(dag))
    assert stored.timetable.periodic
    assert stored.next_dagrun_info(last_automated_run_info=None) is None
    found = stored.iter_dagrun_infos_between(datetime(2012, 2, 28, tzinfo=UTC), datetime(2012, 3, 1, tzinfo=UTC))
    days = [info.data_interval for info in found if info.data_interval]
    assert [f"{day.start:%m-%d} {day.end:%m-%d}" for day in days] == ["02-28 02-29", "02-29 03-01", "03-01 03-02"]  # both ends are included
    assert not any(task.depends_on_past for task in dag.tasks)  # one failed day would hold up all others


def test_the_run_of_a_day_is_named_by_that_day(dag: DAG) -> None:
    stored = DagSerialization.from_dict(DagSerialization.to_dict(dag))
    (info,) = stored.iter_dagrun_infos_between(datetime(2013, 2, 28, tzinfo=UTC), datetime(2013, 2, 28, tzinfo=UTC))
    run_id = DagRun.generate_run_id(  # what Airflow's backfill calls, and not the timetable's own
        run_type=DagRunType.BACKFILL_JOB, logical_date=info.logical_date, run_after=info.run_after
    )
    assert run_id == "backfill__2013-02-28T00:00:00+00:00"
    assert dag_of_run(run_id) == "backfill_days"


def test_the_run_of_a_verdict_tells_its_dag(dag: DAG) -> None:
    moment = DateTime(2026, 11, 20, 12, tzinfo=UTC)
    timetable = DagSerialization.from_dict(DagSerialization.to_dict(dag)).timetable
    by_hand, by_form = (
        timetable.generate_run_id(run_type=kind, run_after=moment, data_interval=None)
        for kind in (DagRunType.MANUAL, DagRunType.BACKFILL_JOB)
    )
    assert DagRunType.from_run_id(by_hand) == DagRunType.MANUAL
    assert {dag_of_run(by_hand), dag_of_run(by_form)} == {"backfill_days"}
    assert {dag_of_run(f"{kind}__2026-11-20T12:00:00+00:00") for kind in NO_BACKFILL} == {"medallion"}


def test_a_run_of_any_date_has_all_tasks(dag: DAG) -> None:
    stored = DagSerialization.from_dict(DagSerialization.to_dict(dag))
    assert {(task.start_date, task.end_date) for task in stored.tasks} == {(None, None)}  # a run by hand lacks tasks that have ended


def test_one_application_runs_after_the_other(dag: DAG) -> None:
    rebuild = dag.get_task("rebuild")
    assert rebuild.max_active_tis_per_dag == 1
    assert rebuild.retries == 10
    assert dag.get_task("find_days").get_flat_relative_ids(upstream=False) == AFTER
    assert rebuild.get_flat_relative_ids(upstream=False) == AFTER - {"rebuild"}
    assert dag.get_task("released").upstream_task_ids == {"rebuild"}  # the job judges and releases: a gate here would race with medallion


# The params


@pytest.mark.parametrize("value", [None, "2024-05-01", "2024-05-01T12:30", "2024-05-01T12:30:00.5Z", "2024-05-01 12:30+02:00"])
def test_moments_that_are_accepted(dag: DAG, value: str | None) -> None:
    assert dag.params.get_param("start").resolve(value) == value


@pytest.mark.parametrize("value", [*HOSTILE, "", "now", "2024-05", 7, ["2024-05-01"], True], ids=lambda value: repr(value)[:30])
def test_moments_that_are_refused(dag: DAG, value: Any) -> None:
    for name in ("start", "end"):
        with pytest.raises(ParamValidationError):
            dag.params.get_param(name).resolve(value)


@pytest.mark.parametrize(
    "value", [["gold.x"], ["bronze.transactions"], [*REBUILT, REBUILT[0]], "gold.daily_totals", [HOSTILE[0]], [7], {}, True]
)
def test_tables_that_are_refused(dag: DAG, value: Any) -> None:
    with pytest.raises(ParamValidationError):
        dag.params.get_param("tables").resolve(value)


def test_every_table_of_silver_and_gold_may_be_chosen(dag: DAG) -> None:
    assert dag.params.get_param("tables").resolve(list(REBUILT)) == list(REBUILT)
    assert {table.name for table in GOLD} < set(REBUILT)


@pytest.mark.parametrize("value", ["true", 1, None, []])
def test_dry_run_takes_a_boolean_only(dag: DAG, value: Any) -> None:
    with pytest.raises(ParamValidationError):
        dag.params.get_param("dry_run").resolve(value)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, "found no start and end"),
        ({"start": "2024-05-01"}, "found no start and end"),
        ({"start": "2024-05-02", "end": "2024-05-01"}, "expected a start before the end"),
        ({"start": "2024-05-01T00:00+01:00", "end": "2024-04-30T23:00Z"}, "expected a start before the end"),
        ({"start": "1924-05-01", "end": "2024-05-01"}, "silver holds nothing older"),
        ({"start": "2001-01-01", "end": "2024-05-01"}, "found a range of 8521 days, expected at most 3660"),
        ({"start": "2024-02-30", "end": "2024-05-01"}, "the start cannot be read"),
        ({"start": "2024-02-01", "end": "9999-12-31T23:59-23:59"}, "the end cannot be read"),
        *(({"start": text, "end": "2024-05-01"}, "the start cannot be read") for text in HOSTILE),
        ({"start": "2024-02-01", "end": "2024-05-01", "tables": ["gold.x"]}, "not allowed"),
        ({"start": "2024-02-01", "end": "2024-05-01", "tables": "gold.daily_totals"}, "not allowed"),
        ({"start": "2024-02-01", "end": "2024-05-01", "dry_run": "yes"}, "not allowed"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_range_that_cannot_be_used_is_refused_in_one_line(given: dict[str, Any], found: str) -> None:
    with pytest.raises(AirflowFailException, match=found) as refused:
        read_range(params(**given))
    assert len(str(refused.value).splitlines()) == 1
    assert len(str(refused.value)) < 700


def test_a_range_reaches_the_job_as_arguments_to_the_minute() -> None:
    asked = read_range(params(start="2024-05-01T12:30+02:00", end="2024-05-01T11:00", tables=["gold.daily_totals", "silver.transactions"]))
    tables = ["--tables", "silver.transactions", "gold.daily_totals"]
    assert asked.arguments() == ["backfill", "--start=2024-05-01T10:30:00Z", "--end=2024-05-01T11:00:00Z", *tables, "--publish"]
    assert read_range(asked.to_xcom()) == asked
    dry = read_range(params(start="2024-05-01", end="2024-05-02", dry_run=True))
    assert dry.arguments() == ["backfill", "--start=2024-05-01T00:00:00Z", "--end=2024-05-02T00:00:00Z", "--dry-run"]


# find_days


def test_a_run_of_a_backfill_asks_for_its_own_day(dag: DAG, home: Settings) -> None:
    chosen = ["gold.debit_share"]
    assert asked_by(dag, FIRST) == {"start": "2024-05-01T00:00:00Z", "end": "2024-05-02T00:00:00Z", "tables": [], "dry_run": False}
    assert asked_by(dag, FIRST, tables=chosen)["tables"] == chosen
    assert asked_by(dag, FIRST, dry_run=True)["dry_run"]
    asks = sorted(control.read(home, BACKFILLS).to_pylist(), key=lambda ask: ask["number"])
    assert [(ask["run_id"], ask["state"], ask["tables"]) for ask in asks] == [
        ("backfill__2024-05-01", "asked", list(REBUILT)),
        ("backfill__2024-05-01", "asked", chosen),
    ]
    assert {(f"{ask['range_start']:%m-%d}", f"{ask['range_end']:%m-%d}") for ask in asks} == {("05-01", "05-02")}


def test_a_backfill_takes_no_start_and_end_of_its_form(dag: DAG, home: Settings) -> None:
    with pytest.raises(AirflowFailException, match="the dates of the Backfill form are the range"):
        asked_by(dag, FIRST, start="2024-05-01")
    assert control.read(home, BACKFILLS).num_rows == 0


def test_a_run_by_hand_rebuilds_what_it_asks_for_and_nobody_else_does(dag: DAG, home: Settings) -> None:
    asked = asked_by(dag, None, start="2024-05-01T10:00Z", end="2024-05-01T10:01Z", tables=["gold.debit_share"])
    assert asked == {"start": "2024-05-01T10:00:00Z", "end": "2024-05-01T10:01:00Z", "tables": ["gold.debit_share"], "dry_run": False}
    with pytest.raises(AirflowFailException, match="found no start and end"):
        asked_by(dag, None)
    assert control.read(home, BACKFILLS).num_rows == 0
