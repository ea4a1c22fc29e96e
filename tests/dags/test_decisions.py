"""Decisions about closed gates: who is asked, what the question says, which answers are taken, what reaches the job."""

import json
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.providers.common.compat.sdk import DagRunTriggerException
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException, ParamValidationError, TaskAwaitingInput

from include.orchestration.decisions import AskForDecision, decision_run_id, question, read_answer, skip_when_waiting, waits_for
from include.orchestration.jobs import Job
from include.orchestration.progress import Work, due_work, has_new_batches
from spark_jobs.control.verdicts import CHOICES, Decision, Finding
from spark_jobs.lake.tables import GOLD, SILVER, ensure_tables
from spark_jobs.releases.decisions import decide
from spark_jobs.runtime.one_line import LONGEST
from spark_jobs.runtime.settings import Settings, read_settings
from tests.support.questions import ASKED, DECISION, ask, event, judge
from tests.support.task_instance import TaskInstance
from tests.support.verdicts import NOW, RUN, verdict
from tests.support.warehouse import at, bronze, write

HOSTILE = ["$(touch owned)", "; touch owned #", "`touch owned`", "{{ 7 * 7 }} {% raw %}", "'\"\\", "--who=eve", "-h", "one  two ", "ä€😀"]


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("LEDGER_HOME", str(tmp_path / "home"))
    ensure_tables(read_settings(), (*SILVER, *GOLD))
    return read_settings()


def decided(choice: str, why: str) -> Decision:
    return Decision(NOW, choice, "silver", "ada", why, RUN, 1, 1)


def test_a_closed_verdict_is_asked_about_in_a_run_named_after_the_gates_run(settings: Settings) -> None:
    judge(settings)
    for _ in range(2):  # the same name again: Airflow skips a run that exists
        with pytest.raises(DagRunTriggerException) as triggered:
            AskForDecision(task_id="ask_for_decision").execute(TaskInstance().context())
        assert (triggered.value.trigger_dag_id, triggered.value.dag_run_id) == ("quality_decision", DECISION)
        assert triggered.value.skip_when_already_exists


def test_nobody_is_asked_when_a_gate_broke_but_none_is_closed(settings: Settings) -> None:
    judge(settings, success=True)
    with pytest.raises(AirflowSkipException, match="nobody is asked"):
        AskForDecision(task_id="ask_for_decision").execute(TaskInstance().context())


@pytest.mark.parametrize("choice", CHOICES)
def test_nobody_is_asked_twice_about_what_was_decided(settings: Settings, choice: str) -> None:
    judge(settings)
    decide(settings, choice, "ada", "because")
    with pytest.raises(AirflowSkipException, match="nobody is asked"):
        AskForDecision(task_id="ask_for_decision").execute(TaskInstance().context())


def test_a_gate_that_closed_again_is_asked_about_again(settings: Settings) -> None:
    judge(settings)
    decide(settings, "wait", "ada", "because", now=NOW + timedelta(minutes=1))
    judge(settings, at=NOW + timedelta(minutes=2))
    with pytest.raises(DagRunTriggerException) as triggered:
        AskForDecision(task_id="ask_for_decision").execute(TaskInstance().context())
    assert triggered.value.dag_run_id == f"decision__{RUN}__20261120T120200.000000"


def test_one_question_for_one_cause_whichever_runs_judge_it(settings: Settings) -> None:
    judge(settings)
    judge(settings, run_id="backfill__2013-01-01T00:00:00+00:00", at=NOW + timedelta(minutes=5))
    with pytest.raises(DagRunTriggerException) as triggered:
        AskForDecision(task_id="ask_for_decision").execute(TaskInstance().context())
    assert triggered.value.dag_run_id == DECISION


def test_a_run_id_that_airflow_would_refuse_is_made_fit() -> None:
    closed = verdict(run_id="by hand/../é" * 40, success=False)
    assert decision_run_id([closed]).startswith("decision__by-hand-..--by-hand")
    assert len(decision_run_id([closed])) <= 250


def test_the_next_run_fails_at_once_and_names_the_decision_it_waits_for(settings: Settings) -> None:
    judge(settings)
    with pytest.raises(AirflowFailException) as failure:
        has_new_batches(force=True, ti=TaskInstance())
    assert str(failure.value).startswith(
        f"waiting for the decision in run {DECISION} of the DAG quality_decision (Airflow: Required Actions): "
    )
    assert "silver.transactions (unique_ids" in str(failure.value)
    assert "report: http://127.0.0.1:8080/quality/data_docs/8.html" in str(failure.value)


def test_a_closed_gate_starts_no_run_until_a_person_decides_otherwise(settings: Settings) -> None:
    write(settings, {"bronze.transactions": [bronze(at(0, 0, 1), b"T1", b"{}")]})
    judge(settings)
    assert due_work(settings, NOW) is None
    decide(settings, "wait", "ada", "because", now=NOW + timedelta(minutes=1))
    assert due_work(settings, NOW) is None
    decide(settings, "release anyway", "ada", "because", now=NOW + timedelta(minutes=2))
    assert due_work(settings, NOW) == Work("Bronze holds batches that the newest release lacks.", 0)


def test_after_wait_the_next_run_names_who_decided_and_how_to_decide_otherwise(settings: Settings) -> None:
    judge(settings)
    decide(settings, "wait", "ada", "the bank looks into it", now=NOW + timedelta(minutes=1))
    with pytest.raises(AirflowFailException) as failure:
        has_new_batches(force=False)
    for part in (
        "waiting, as was decided",
        "quality_decision is triggered again",
        "ada decided to wait at 2026-11-20T12:01Z",
        "the bank looks into it",
    ):
        assert part in str(failure.value)


@pytest.mark.parametrize("choice", ["release anyway", "roll back"])
def test_after_the_other_choices_the_next_run_continues(settings: Settings, choice: str) -> None:
    judge(settings)
    decide(settings, choice, "ada", "because")
    assert has_new_batches(force=True)


def test_a_run_by_hand_without_a_closed_gate_ends_at_once(settings: Settings, dag_bag: DagBag) -> None:
    with pytest.raises(AirflowSkipException, match="no gate is closed: nothing to decide"):
        ask(dag_bag).execute(TaskInstance().context())


def test_the_question_is_asked_with_what_the_gate_told(settings: Settings, dag_bag: DagBag, monkeypatch: pytest.MonkeyPatch) -> None:
    told = []
    monkeypatch.setattr("airflow.providers.standard.operators.hitl.upsert_hitl_detail", lambda **detail: told.append(detail))
    judge(settings)
    ti = TaskInstance()
    with pytest.raises(TaskAwaitingInput):
        ask(dag_bag).execute(ti.context())
    (detail,) = told
    assert detail["options"] == list(CHOICES)
    assert detail["subject"] == "The gate of silver is closed: release anyway, roll back or wait?"
    assert "| silver.transactions | unique_ids | `{{ 7 * 7 }} / 'x'` | `at most 0` |" in detail["body"]
    assert "few_rows" not in detail["body"]  # it closed nothing
    assert set(detail["params"]) == {"reason"}
    assert ti.pushed["asked"] == [ASKED]


def test_the_question_tells_where_to_read_and_what_each_choice_does() -> None:
    closed = verdict(success=False, findings=(Finding("unique_ids"),), report="file:///a%20home/quality/data_docs/validations/8.html")
    text = question([closed], 7, "http://airflow")
    for part in (
        f"[{RUN}](http://airflow/dags/medallion/runs/scheduled__2026-11-20T12%3A00%3A00%2B00%3A00)",
        "[silver.transactions](http://airflow/quality/data_docs/validations/8.html)",
        "| unique_ids | \N{EN DASH} | \N{EN DASH} |",  # a verdict of an older version of the project
        "[The evidence](http://airflow/plugin/quality/quality/decisions)",
        "Readers see release 7.",
        "return to release 7",
        *CHOICES,
    ):
        assert part in text
    assert "file:" not in text
    text = question([replace(closed, decision=decided("wait", "a\nb"), run_id="5f")], None, "")
    assert "`ada` decided to wait at 2026-11-20 12:00 UTC: `a b`" in text
    assert "no release: there is none yet" in text
    assert "Judged in run `5f`, by hand." in text


def test_the_question_of_a_backfill_says_what_was_found(settings: Settings, dag_bag: DagBag, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its DAG has no task for each gate that could be asked."""
    told = []
    monkeypatch.setattr("airflow.providers.standard.operators.hitl.upsert_hitl_detail", lambda **detail: told.append(detail))
    judge(settings, run_id="backfill__2013-01-01T00:00:00+00:00")
    with pytest.raises(TaskAwaitingInput):
        ask(dag_bag).execute(TaskInstance().context())
    assert "| silver.transactions | unique_ids | `{{ 7 * 7 }} / 'x'` | `at most 0` |" in told[0]["body"]
    assert "| \N{EN DASH} |" not in told[0]["body"]
    assert "/dags/backfill_days/runs/" in told[0]["body"]


@pytest.mark.parametrize(
    "why",
    [None, "", " \n ", "x" * 1_000_000, "a\nb", "ends\n", "a\u2028b", "a\0b", "a\x1bb", "\ud800", 7, ["x"], {"x": 1}],
    ids=lambda value: repr(value)[:30],
)
def test_an_answer_without_a_usable_reason_is_not_taken(why: Any) -> None:
    with pytest.raises(AirflowException, match=r"answer of ada was not taken: .*answer again") as failure:
        read_answer(event(why))
    assert len(str(failure.value)) < 300


@pytest.mark.parametrize("answer", [event(user=None), event(choice="delete everything"), {**event(), "chosen_options": []}, {}])
def test_an_answer_by_nobody_or_without_a_choice_is_not_taken(answer: dict[str, Any]) -> None:
    with pytest.raises(AirflowException, match="answer again"):
        read_answer(answer)


def test_the_form_refuses_a_reason_of_a_megabyte(dag_bag: DagBag) -> None:
    reason = ask(dag_bag).params.get_param("reason")
    assert reason.resolve("x" * 1000) == "x" * 1000
    assert LONGEST >= 1000
    for value in ("x" * 1_000_000, 7, None, ["x"]):
        with pytest.raises(ParamValidationError):
            reason.resolve(value)


@pytest.mark.parametrize("why", HOSTILE)
def test_a_reason_reaches_the_job_as_it_is(dag_bag: DagBag, tmp_path: Path, why: str) -> None:
    decide_task: Any = dag_bag.dags["quality_decision"].get_task("decide")
    answer = read_answer(event(why, "release anyway", {"id": "7", "name": "{{ run_id }}"}))
    arguments = decide_task.render_template(decide_task.arguments, {"ti": TaskInstance({("ask", "return_value"): answer})})
    seen = tmp_path / "seen"
    command = (sys.executable, "-c", f"import json, sys; json.dump(sys.argv[1:], open({str(seen)!r}, 'w'))")
    Job(task_id="decide", arguments=arguments, command=command).execute(Context(run_id="r"))
    assert json.loads(seen.read_text()) == ["decide", "release-anyway", "--who={{ run_id }}", f"--why={why}"]


def test_a_name_that_somebody_types_in_does_not_count(dag_bag: DagBag) -> None:
    """Airflow says who answered or triggered; what the form, the parameters or the run's conf say of it is nothing."""
    typed = event()
    typed["params_input"] |= {"who": "eve", "name": "eve"}
    answer = read_answer(typed)
    assert answer == {"choice": "wait", "who": "ada", "why": "the bank confirmed it"}
    eve = {"who": "eve", "name": "eve", "action": "stop", "why": "so"}
    run = SimpleNamespace(triggering_user_name="ada", conf=eve)
    context: Any = {"ti": TaskInstance({("ask", "return_value"): answer}), "dag_run": run, "params": eve}
    found = {}
    for dag_id, dag in dag_bag.dags.items():
        for task in dag.tasks:
            arguments = getattr(task, "arguments", getattr(task, "application_args", None)) or ()
            if any("--who" in argument for argument in arguments):
                found[dag_id] = [each for each in task.render_template(list(arguments), context) if each.startswith("--who")]
                assert not {"who", "name"} & set(task.params)
    assert found == {dag_id: ["--who=ada"] for dag_id in ("quality_decision", "bronze_control", "engine_control", "live_control")}


def test_medallion_is_started_unless_the_decision_is_to_wait(dag_bag: DagBag) -> None:
    start: Any = dag_bag.dags["quality_decision"].get_task("start_medallion")
    assert (start.trigger_dag_id, start.conf) == ("medallion", None)  # not forced: the watcher may start one at the same moment
    skip_when_waiting(TaskInstance({("ask", "return_value"): {"choice": "roll back"}}).context())
    with pytest.raises(AirflowSkipException):
        skip_when_waiting(TaskInstance({("ask", "return_value"): {"choice": "wait"}}).context())


def test_what_is_waited_for_is_the_newest_closed_verdict() -> None:
    verdicts = [
        verdict(run_id=run, judged_at=NOW + timedelta(seconds=second), success=False) for second, run in ((1, "late"), (0, "early"))
    ]
    assert "decision__late__20261120T120001" in waits_for(verdicts)
