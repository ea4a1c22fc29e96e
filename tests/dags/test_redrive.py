"""The DAG redrive_rows: its params, and what reaches the job."""

from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException, ParamValidationError

from include.orchestration.jobs import spark_job
from include.orchestration.redrive import Redrive, arguments
from spark_jobs.commands.arguments import parse
from spark_jobs.run import JOBS
from tests.support.fake_spark import FakeSparkSubmit
from tests.support.task_instance import TaskInstance

NOBODY = {"rule": None, "table": None, "first_batch": None, "last_batch": None, "source": "", "dry_run": True}
CHOSEN = {"rule": "amount_scale", "table": "silver.transactions_quarantine", "first_batch": 3, "last_batch": 7, "source": "file:old days"}
HOSTILE = ["'; DROP TABLE x", "$(id)", "{{ 7 * 7 }}", "../../etc/passwd", "amount_scale\n", "--corrections=x", "x" * 1000, "", 7, ["a"]]


def params(**given: Any) -> dict[str, Any]:
    return NOBODY | {"rule": "amount_scale"} | given


@pytest.fixture
def dag(dag_bag: DagBag) -> DAG:
    return dag_bag.dags["redrive_rows"]


def test_a_run_starts_as_a_dry_run_and_needs_a_rule(dag: DAG) -> None:
    assert dag.params.get_param("dry_run").value is True
    assert {name: dag.params.get_param(name).value for name in dag.params} == NOBODY
    with pytest.raises(ParamValidationError):
        dag.params.get_param("rule").resolve(None)


@pytest.mark.parametrize("name", ["rule", "table", "first_batch", "last_batch"])
@pytest.mark.parametrize("value", HOSTILE)
def test_what_is_no_such_value_is_refused_by_the_form_and_by_the_task(dag: DAG, name: str, value: Any) -> None:
    if name.endswith("batch") and value == 7:
        value = -1
    with pytest.raises(ParamValidationError):
        dag.params.get_param(name).resolve(value)
    with pytest.raises(AirflowFailException, match=r"^found .*, expected "):
        arguments(params(**{name: value}))


@pytest.mark.parametrize("value", ["'; drop table x", "$(id)", "{{ 7 }}", "a\n", "x" * 201, 7, True])
def test_a_source_that_is_none_is_refused(dag: DAG, value: Any) -> None:
    with pytest.raises(ParamValidationError):
        dag.params.get_param("source").resolve(value)
    with pytest.raises(AirflowFailException, match="source"):
        arguments(params(source=value))


@pytest.mark.parametrize(
    "given", [{"dry_run": "no"}, {"dry_run": None}, {"first_batch": True}, {"last_batch": 2**60}, {"first_batch": 1.5}]
)
def test_batches_and_dry_run_are_whole_numbers_and_a_boolean(given: dict[str, Any]) -> None:
    with pytest.raises(AirflowFailException, match="batches or dry_run"):
        arguments(params(**given))


def test_the_choice_is_what_the_job_takes(dag: DAG) -> None:
    assert all(dag.params.get_param(name).resolve(value) == value for name, value in CHOSEN.items())
    given = arguments(params(**CHOSEN, dry_run=False))
    options = parse(given, {name: job.__doc__ for name, job in JOBS.items()})
    assert {name: getattr(options, name) for name in CHOSEN} == CHOSEN
    assert (options.name, options.dry_run, options.corrections) == ("redrive", False, None)
    assert parse(arguments(params()), {name: job.__doc__ for name, job in JOBS.items()}).dry_run


def test_it_reaches_the_job_as_arguments_and_no_shell_sees_it(spark_submit: FakeSparkSubmit) -> None:
    with DAG("d", schedule=None):
        task: Any = spark_job("redrive", operator=Redrive)
    spark_submit.prepare(task, "exit 0").execute(TaskInstance().context(params=params(**CHOSEN)))
    assert spark_submit.arguments()[-6:] == arguments(params(**CHOSEN))[-6:]
    assert "--source=file:old days" in spark_submit.arguments()
    assert spark_submit.arguments()[-1] == "--dry-run"


def test_without_a_rule_nothing_is_started(spark_submit: FakeSparkSubmit) -> None:
    with DAG("d", schedule=None):
        task: Any = spark_job("redrive", operator=Redrive)
    with pytest.raises(AirflowFailException, match="found no name of a rule"):
        spark_submit.prepare(task, "exit 0").execute(TaskInstance().context(params=NOBODY))
    assert not (spark_submit.home / "arguments").exists()
