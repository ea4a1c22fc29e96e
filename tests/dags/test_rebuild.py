"""The task `rebuild` of backfill_days: what reaches the job, how it ends, and what it waits for."""

import sys
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowException, AirflowFailException, DownstreamTasksSkipped, TaskDeferred

from include.orchestration.backfill import Range, Rebuild
from include.orchestration.jobs import job, spark_job
from spark_jobs.control import backfills
from spark_jobs.lake.tables import DECISIONS, QUALITY_RESULTS, REBUILT
from spark_jobs.runtime.settings import ROOT, Settings
from tests.support import quality_rows
from tests.support.fake_spark import FakeSparkSubmit
from tests.support.task_instance import TaskInstance

DAYS = Range(datetime(2024, 5, 1, tzinfo=UTC), datetime(2024, 5, 3, tzinfo=UTC))
CLOSE = "from tests.support import quality_rows as r; from spark_jobs.runtime.settings import read_settings as s; r.close_gate(s(), 3)"


def rebuild(spark: FakeSparkSubmit, ending: str, ti: TaskInstance, run_id: str = "") -> None:
    with DAG("d", schedule=None):
        task: Any = spark_job("backfill", task_id="rebuild", operator=Rebuild)
        task >> job("release")
    spark.prepare(task, ending).execute(ti.context(run_id=run_id))


def test_the_job_gets_the_range_of_find_days_and_no_shell_sees_it(spark_submit: FakeSparkSubmit) -> None:
    asked = Range(datetime(2024, 5, 1, tzinfo=UTC), datetime(2024, 5, 3, tzinfo=UTC), ("gold.daily_totals", "gold.debit_share"))
    rebuild(spark_submit, "exit 0", TaskInstance({("find_days", "return_value"): asked.to_xcom()}))
    assert spark_submit.arguments()[-len(asked.arguments()) :] == asked.arguments()


def test_a_dry_run_leaves_out_gates_and_release(spark_submit: FakeSparkSubmit) -> None:
    asked = Range(datetime(2024, 5, 1, tzinfo=UTC), datetime(2024, 5, 3, tzinfo=UTC), dry_run=True)
    with pytest.raises(DownstreamTasksSkipped) as skipped:
        rebuild(spark_submit, "exit 0", TaskInstance({("find_days", "return_value"): asked.to_xcom()}))
    assert skipped.value.tasks == ["release"]


@pytest.mark.parametrize(("exit_code", "final"), [(5, False), (1, False), (2, True), (3, True)])
def test_a_failure_says_why_and_is_final_where_no_other_try_can_help(spark_submit: FakeSparkSubmit, exit_code: int, final: bool) -> None:
    asked = Range(datetime(2024, 5, 1, tzinfo=UTC), datetime(2024, 5, 3, tzinfo=UTC))
    ti = TaskInstance({("find_days", "return_value"): asked.to_xcom()})
    with pytest.raises(AirflowException, match="why it failed") as failed:
        rebuild(spark_submit, f"echo 'why it failed'; exit {exit_code}", ti)
    assert isinstance(failed.value, AirflowFailException) is final


def test_a_day_that_another_run_has_rebuilt_meanwhile_is_not_rebuilt_again(home: Settings, spark_submit: FakeSparkSubmit) -> None:
    """Unless it is asked for again."""
    ti = TaskInstance({("find_days", "return_value"): DAYS.to_xcom()})
    for run_id in ("first", "second"):
        backfills.ask(home, DAYS.start, DAYS.end, REBUILT, run_id)
    begun = backfills.find_or_start(home, DAYS.start, DAYS.end, REBUILT, {}, "first")
    backfills.finish(home, begun, "first")
    with pytest.raises(DownstreamTasksSkipped) as skipped:
        rebuild(spark_submit, "exit 0", ti, "second")
    assert skipped.value.tasks == ["release"]
    assert not (spark_submit.home / "arguments").exists()
    backfills.ask(home, DAYS.start, DAYS.end, REBUILT, "second")
    for run_id in ("second", "first"):  # the second one asked again; of the first one, only the task was cleared
        rebuild(spark_submit, "exit 0", ti, run_id)
        assert spark_submit.arguments()[-1] == "--publish"
        (spark_submit.home / "arguments").unlink()


def test_a_rebuild_waits_for_a_decision_about_live_rows_and_goes_on_after_it(home: Settings, spark_submit: FakeSparkSubmit) -> None:
    """Without a process, as often as needed; a dry run changes nothing, and waits for nothing."""
    quality_rows.close_gate(home, 3)
    ti = TaskInstance({("find_days", "return_value"): DAYS.to_xcom()})
    with pytest.raises(TaskDeferred) as deferred:
        rebuild(spark_submit, "exit 0", ti)
    assert (deferred.value.method_name, deferred.value.timeout) == ("execute", None)
    assert not (spark_submit.home / "arguments").exists()
    with pytest.raises(DownstreamTasksSkipped):
        rebuild(spark_submit, "exit 0", TaskInstance({("find_days", "return_value"): replace(DAYS, dry_run=True).to_xcom()}))
    quality_rows.write(home, DECISIONS, [quality_rows.decision(3, "silver", "release anyway", "Ada", "known")])
    rebuild(spark_submit, "exit 0", ti)
    assert spark_submit.arguments()[-1] == "--publish"


def test_a_gate_that_closes_for_live_rows_meanwhile_is_no_failure_of_the_rebuild(home: Settings, spark_submit: FakeSparkSubmit) -> None:
    ti = TaskInstance({("find_days", "return_value"): DAYS.to_xcom()})
    with pytest.raises(TaskDeferred):
        rebuild(spark_submit, f"cd {ROOT}; {sys.executable} -c '{CLOSE}'; exit 3", ti)


def test_a_backfills_own_closed_gate_fails_it(home: Settings, spark_submit: FakeSparkSubmit) -> None:
    """Its own run asks about it afterwards."""
    closed = quality_rows.verdict(3, "silver.transactions", "negative_amounts")
    quality_rows.write(home, QUALITY_RESULTS, [closed | {"run_id": "backfill_by_hand__1"}])
    ti = TaskInstance({("find_days", "return_value"): DAYS.to_xcom()})
    with pytest.raises(AirflowFailException, match="negative"):
        rebuild(spark_submit, "echo 'gate silver is closed: negative'; exit 3", ti)


def test_without_a_range_nothing_is_started(spark_submit: FakeSparkSubmit) -> None:
    with pytest.raises(AirflowFailException, match="found no start and end"):
        rebuild(spark_submit, "exit 0", TaskInstance())
    assert not (spark_submit.home / "arguments").exists()
