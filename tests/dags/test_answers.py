"""Answers to the question about a closed gate: which ones count, and that none is lost."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.providers.common.compat.sdk import DagRunTriggerException
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException, TaskAwaitingInput

from spark_jobs import control
from spark_jobs.control.verdicts import closed_verdicts
from spark_jobs.lake.tables import DECISIONS, GOLD, SILVER, ensure_tables
from spark_jobs.releases.decisions import decide
from spark_jobs.runtime.settings import Settings, read_settings
from tests.support.questions import DECISION, ask, asked, event, judge
from tests.support.task_instance import TaskInstance
from tests.support.verdicts import NOW


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("LEDGER_HOME", str(tmp_path / "home"))
    ensure_tables(read_settings(), (*SILVER, *GOLD))
    return read_settings()


def test_an_answer_is_choice_who_and_why(settings: Settings, dag_bag: DagBag) -> None:
    judge(settings)
    answer = ask(dag_bag).execute_complete(asked().context(), event(" the bank confirmed it", "roll back"))
    assert answer == {"choice": "roll back", "who": "ada", "why": " the bank confirmed it"}


def test_an_answer_counts_when_another_run_has_judged_the_same(settings: Settings, dag_bag: DagBag) -> None:
    judge(settings)
    judge(settings, run_id="scheduled__2026-11-20T12:05:00+00:00", at=NOW + timedelta(minutes=5))
    assert ask(dag_bag).execute_complete(asked().context(), event())["who"] == "ada"


def test_an_answer_to_another_question_is_kept_and_the_next_question_says_why(
    settings: Settings, dag_bag: DagBag, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = []
    monkeypatch.setattr("airflow.providers.standard.operators.hitl.upsert_hitl_detail", lambda **detail: told.append(detail))
    judge(settings)
    judge(settings, table="silver.accounts", at=NOW + timedelta(seconds=1))
    with pytest.raises(AirflowFailException, match=r"answer of ada, wait, was not carried out: silver\.accounts version 3"):
        ask(dag_bag).execute_complete(asked().context(run_id=DECISION), event())
    (kept,) = control.read(settings, DECISIONS).to_pylist()
    assert (kept["choice"], kept["who"]) == ("wait (unused answer)", "ada")
    with pytest.raises(TaskAwaitingInput):
        ask(dag_bag).execute(TaskInstance().context(run_id="another"))  # Airflow keeps the text of a question over all tries of its task
    for part in (
        "**Asked again.** `ada` answered `wait`, which did not count: ",
        "the bank confirmed it",
        "silver.accounts version 3",
        "closed too",
    ):
        assert part in told[0]["body"]
    assert [verdict.decision for verdict in closed_verdicts(settings, "silver")] == [None, None]  # it decided nothing


@pytest.mark.parametrize("choice", ["release anyway", "roll back"])
def test_an_answer_after_another_persons_decision_fails_and_names_it(settings: Settings, dag_bag: DagBag, choice: str) -> None:
    judge(settings)
    decide(settings, choice, "bob", "known gap", now=NOW + timedelta(minutes=1))
    with pytest.raises(AirflowFailException, match=f"answer of ada, wait, was not carried out: {choice}, by bob at .*: known gap"):
        ask(dag_bag).execute_complete(asked().context(run_id=DECISION), event())
    assert {row["who"] for row in control.read(settings, DECISIONS).to_pylist()} == {"ada", "bob"}


def test_an_answer_that_nobody_needs_any_more_is_kept(settings: Settings, dag_bag: DagBag) -> None:
    judge(settings)
    judge(settings, success=True, at=NOW + timedelta(minutes=1))
    with pytest.raises(AirflowSkipException, match="answer of ada, wait, was not carried out: the gate was judged again and passed"):
        ask(dag_bag).execute_complete(asked().context(run_id=DECISION), event())
    assert [row["who"] for row in control.read(settings, DECISIONS).to_pylist()] == ["ada"]


def test_an_answer_without_a_reason_is_told_in_the_next_question(settings: Settings, dag_bag: DagBag) -> None:
    judge(settings)
    with pytest.raises(AirflowFailException, match="answer of ada was not taken"):
        ask(dag_bag).execute_complete(asked().context(run_id=DECISION), event(why=""))
    (kept,) = control.read(settings, DECISIONS).to_pylist()
    assert (kept["who"], kept["run_id"]) == ("ada", DECISION)
    assert "reason" in kept["why"]
    assert asked_again_in(dag_bag) == f"{DECISION}__2"
    with pytest.raises(AirflowFailException):
        ask(dag_bag).execute_complete(asked().context(run_id=f"{DECISION}__2"), event(why=""))
    assert asked_again_in(dag_bag) == f"{DECISION}__3"
    judge(settings, success=True, at=NOW + timedelta(minutes=1))
    with pytest.raises(AirflowSkipException, match="nobody is asked"):
        asked_again_in(dag_bag)


def asked_again_in(dag_bag: DagBag) -> str:
    """The run that the task after a failed question triggers."""
    task: Any = dag_bag.dags["quality_decision"].get_task("ask_again")
    assert (task.upstream_task_ids, task.trigger_rule) == ({"ask"}, "one_failed")
    with pytest.raises(DagRunTriggerException) as triggered:
        task.execute(TaskInstance().context(run_id=DECISION))
    assert triggered.value.trigger_dag_id == "quality_decision"
    return str(triggered.value.dag_run_id)
