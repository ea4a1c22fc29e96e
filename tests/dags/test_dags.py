"""Every DAG: found, documented, ordered, quick to parse."""

import copy
import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pendulum
import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG, Asset, Context, TriggerRule
from airflow.sdk.exceptions import AirflowFailException, ParamValidationError
from airflow.serialization.serialized_objects import DagSerialization
from airflow.timetables.base import TimeRestriction

from include.orchestration.assets import sources_of
from include.orchestration.gates import QualityGate
from spark_jobs.lake.tables import GOLD, LAYERS, SILVER
from tests.support.fake_spark import FakeSparkSubmit

ROOT = Path(__file__).resolve().parents[2]
EXPECTED = {
    "audit",
    "backfill_days",
    "bronze_control",
    "bronze_ingestion",
    "engine_control",
    "live_control",
    "live_queries",
    "maintenance",
    "medallion",
    "quality_decision",
    "redrive_rows",
    "release_watch",
    "spark_engine",
}  # a new DAG is listed here, and in include/docs/dags.md


def every_dag(dag_bag: DagBag) -> list[DAG]:
    assert set(dag_bag.dags) == EXPECTED
    return list(dag_bag.dags.values())


def test_the_folder_holds_exactly_the_listed_dags(dag_bag: DagBag) -> None:
    assert dag_bag.import_errors == {}
    assert set(dag_bag.dags) == EXPECTED
    assert {file.stem for file in (ROOT / "dags").glob("*.py")} == EXPECTED


def test_every_dag_is_documented_tagged_and_owned(dag_bag: DagBag) -> None:
    for dag in every_dag(dag_bag):
        assert dag.doc_md
        assert dag.description == dag.doc_md.partition("\n")[0].rstrip("."), f"{dag.dag_id}: lists of DAGs show the first line"
        assert "```" not in dag.doc_md, f"{dag.dag_id}: Airflow draws the graph itself"
        first, says, fails = dag.doc_md.split("\n\n")[:3]
        assert (first.count("\n"), says.count("\n") <= 2) == (0, True), f"{dag.dag_id}: a line, and at most three that say more"
        assert re.match(r"\*\*When (it|a task|the task) fails\*\*", fails), f"{dag.dag_id}: what to do comes next"
        assert len(dag.doc_md) > 500, f"{dag.dag_id}: the docstring is the page that people see"
        assert dag.tags
        assert {task.owner for task in dag.tasks} == {"ledger"}
        assert all(task.doc_md for task in dag.tasks)
        assert f"`{dag.dag_id}`" in (ROOT / "include/docs/dags.md").read_text()


def test_every_param_has_a_type_and_a_description(dag_bag: DagBag) -> None:
    params = [(dag.dag_id, name, dag.params.get_param(name)) for dag in every_dag(dag_bag) for name in dag.params]
    assert params
    for dag_id, name, param in params:
        assert param.schema.get("type"), (dag_id, name)
        assert param.description, (dag_id, name)


def test_one_run_at_a_time_and_no_catching_up(dag_bag: DagBag) -> None:
    for dag in every_dag(dag_bag):
        assert dag.max_active_runs == 1
        assert not dag.catchup


@pytest.mark.parametrize("dag_id", ["audit", "maintenance", "release_watch"])
def test_no_run_starts_the_moment_a_dag_is_first_seen(dag_bag: DagBag, dag_id: str) -> None:
    """On a new machine there is nothing yet to audit, to maintain or to watch."""
    dag = DagSerialization.from_dict(DagSerialization.to_dict(dag_bag.dags[dag_id]))
    earliest = pendulum.instance(dag.start_date) if dag.start_date else None
    first = dag.timetable.next_dagrun_info(last_automated_data_interval=None, restriction=TimeRestriction(earliest, None, catchup=False))
    assert first is not None
    assert first.run_after > datetime.now(UTC)


def test_airflow_offers_a_backfill_where_days_mean_something_only(dag_bag: DagBag) -> None:
    dags = [DagSerialization.from_dict(DagSerialization.to_dict(dag)) for dag in every_dag(dag_bag)]
    offered = {dag.dag_id for dag in dags if dag.timetable.periodic and (not dag.allowed_run_types or "backfill" in dag.allowed_run_types)}
    assert offered == {"backfill_days"}


def test_every_dag_has_a_word_for_its_schedule(dag_bag: DagBag) -> None:
    """As Airflow's lists show it; they show nothing for no schedule."""
    words = {dag.dag_id: DagSerialization.from_dict(DagSerialization.to_dict(dag)).timetable.summary for dag in every_dag(dag_bag)}
    by_hand = ("bronze_control", "engine_control", "live_control", "quality_decision", "redrive_rows", "backfill_days")
    assert {words[dag_id] for dag_id in by_hand} == {"on request"}
    assert all(words.values())
    assert "None" not in words.values()


def test_every_dag_survives_serialization(dag_bag: DagBag) -> None:
    for dag in every_dag(dag_bag):
        serialized = DagSerialization.to_dict(dag)
        assert json.dumps(serialized)
        assert set(DagSerialization.from_dict(serialized).task_dict) == set(dag.task_dict)


def test_gates_come_before_what_they_guard(dag_bag: DagBag) -> None:
    every_dag(dag_bag)
    medallion = dag_bag.dags["medallion"]
    guarded = {"bronze_gate": {"gold", "release"}, "silver_gate": {"gold", "release"}, "gold_gate": {"release"}}
    assert {task.task_id for task in medallion.tasks if isinstance(task, QualityGate)} == set(guarded)
    for gate, tasks in guarded.items():
        assert tasks <= medallion.get_task(gate).get_flat_relative_ids(upstream=False)
    for layer in ("silver", "gold"):
        assert f"{layer}_gate" in medallion.get_task(layer).downstream_task_ids
    assert medallion.get_task("silver").get_flat_relative_ids(upstream=False) == set(medallion.task_ids) - {"silver"}


def test_nothing_runs_unless_everything_before_it_succeeded(dag_bag: DagBag) -> None:
    others = [task for dag in every_dag(dag_bag) for task in dag.tasks if task.trigger_rule != TriggerRule.ALL_SUCCESS]
    asking = [*((name, "ask_for_decision") for name in ("backfill_days", "medallion")), ("quality_decision", "ask_again")]
    assert sorted((task.dag_id, task.task_id) for task in others) == asking
    assert all(task.downstream_task_ids == set() for task in others)  # it moves no rows, and nothing comes after it


def test_what_runs_on_request_and_the_watch_need_no_switch(dag_bag: DagBag) -> None:
    on = {dag.dag_id for dag in every_dag(dag_bag) if dag.is_paused_upon_creation is False}
    assert on == {
        "audit",
        "backfill_days",
        "bronze_control",
        "engine_control",
        "live_control",
        "maintenance",
        "quality_decision",
        "redrive_rows",
        "release_watch",
    }


def test_an_alert_hangs_on_what_people_must_hear_about(tmp_path: Path) -> None:
    script = """
import json
from airflow.dag_processing.dagbag import DagBag
dags = DagBag(dag_folder="dags").dags.values()
tasks = [task for dag in dags for task in dag.tasks if task.on_failure_callback]
print(json.dumps({f"{task.dag_id}.{task.task_id}": len(task.on_failure_callback) for task in tasks}))
"""
    settings = {"LEDGER_ALERT_WEBHOOK": "https://example.org/hook", "LEDGER_ALERT_MAIL": "ops@example.org", "AIRFLOW_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env={**os.environ, **settings}, capture_output=True, text=True, check=True
    )
    gates = [f"medallion.{layer}_gate" for layer in LAYERS]
    told = [
        "audit.compare_with_bronze",
        "backfill_days.rebuild",
        "bronze_ingestion.ingest",
        "live_queries.live",
        "spark_engine.engine",
        *gates,
    ]
    assert json.loads(done.stdout.splitlines()[-1]) == dict.fromkeys([*told, "release_watch.check_release"], 2)


def test_nothing_configured_alerts_nobody(dag_bag: DagBag) -> None:
    assert [task.task_id for dag in every_dag(dag_bag) for task in dag.tasks if task.on_failure_callback] == []


def test_every_table_belongs_to_the_gate_of_its_layer_and_to_no_other_task(dag_bag: DagBag) -> None:
    owners = [(asset.name, task.task_id) for dag in every_dag(dag_bag) for task in dag.tasks for asset in task.outlets]
    rebuilt = [(table.name, "released") for table in (*SILVER, *GOLD)]  # of backfill_days, whose job has judged them
    gated = [(table.name, f"{layer}_gate") for layer, tables in LAYERS.items() for table in tables]
    assert sorted(owners) == sorted([*gated, ("release", "release"), *rebuilt])


def test_the_asset_graph_leads_from_the_topics_to_the_release(dag_bag: DagBag) -> None:
    tasks = dag_bag.dags["medallion"].task_dict
    steps = ("bronze_gate", "silver_gate", "gold_gate", "release")
    taken, made = ([{asset.name for asset in assets(tasks[step])} for step in steps] for assets in (_inlets, _outlets))
    assert taken[0] == {"kafka.transactions", "kafka.customers", "kafka.accounts"}
    assert taken[1:3] == made[:2]
    assert taken[3] == made[0] | made[1] | made[2]
    assert made[3] == {"release"}
    for name in made[0] | made[1] | made[2] | made[3]:
        assert set(sources_of(name)) <= taken[0] | made[0] | made[1] | made[2]
        assert sources_of(name)
    described = [asset.extra["description"] for step in steps for asset in (*_inlets(tasks[step]), *_outlets(tasks[step]))]
    assert all(described)


def _inlets(task: Any) -> list[Asset]:
    return list(task.inlets)


def _outlets(task: Any) -> list[Asset]:
    return list(task.outlets)


@pytest.mark.parametrize("value", [None, "earliest", "latest", "committed", "2024-05-01T00:00:00Z", "2024-05-01T00:00:00.5+02:00"])
def test_starting_offsets_that_are_accepted(dag_bag: DagBag, value: str | None) -> None:
    assert dag_bag.dags["bronze_ingestion"].params.get_param("starting_offsets").resolve(value) == value


@pytest.mark.parametrize(
    "value",
    [
        "",
        "Earliest",
        "earliest\n",
        " latest",
        "2024-05-01",
        "2024-05-01T00:00:00",  # no zone
        "٢٠٢٤-05-01T00:00:00Z",  # digits that are not ASCII
        "earliest; rm -rf /",
        "$(id)",
        "{{ 7 * 7 }}",
        "../../etc/passwd",
        "--packages=evil",
        "x" * 1_000_000,
        7,
        ["earliest"],
        {"earliest": 1},
        True,
    ],
    ids=lambda value: repr(value)[:30],
)
def test_starting_offsets_that_are_refused(dag_bag: DagBag, value: Any) -> None:
    with pytest.raises(ParamValidationError):
        dag_bag.dags["bronze_ingestion"].params.get_param("starting_offsets").resolve(value)


@pytest.mark.parametrize("value", [0, -1, "7", "7; rm -rf /", "{{ 7 }}", 1.5, True, []])
def test_an_audit_takes_the_number_of_a_release_only(dag_bag: DagBag, value: Any) -> None:
    with pytest.raises(ParamValidationError):
        dag_bag.dags["audit"].params.get_param("as_of").resolve(value)


@pytest.mark.parametrize(("as_of", "words"), [(None, []), (7, ["--as-of=7"])])
def test_an_audit_is_of_the_present_or_of_a_release(
    dag_bag: DagBag, spark_submit: FakeSparkSubmit, as_of: int | None, words: list[str]
) -> None:
    task: Any = copy.copy(dag_bag.dags["audit"].get_task("compare_with_bronze"))
    context = Context(run_id="manual", params={"as_of": as_of})
    task.render_template_fields(context)
    spark_submit.prepare(task, "echo '2026-01-01T00:00:00Z ERROR found rows that are not what bronze says'; exit 4")
    with pytest.raises(AirflowFailException, match=r"^audit: exit code 4 \(audit difference\): found rows that are not what bronze says$"):
        task.execute(context)
    assert spark_submit.arguments()[-len(words) - 2 :] == ["audit", "--engine=none", *words]


def test_what_runs_by_the_clock_leaves_the_engine_to_the_pipeline(dag_bag: DagBag) -> None:
    tend: Any = dag_bag.dags["maintenance"].get_task("tend_tables")
    assert tend.arguments == ["maintenance", "--engine=none"]


@pytest.mark.parametrize("value", ["true", "yes; rm -rf /", 1, None, [], {}])
def test_force_takes_a_boolean_only(dag_bag: DagBag, value: Any) -> None:
    with pytest.raises(ParamValidationError):
        dag_bag.dags["medallion"].params.get_param("force").resolve(value)


def test_parsing_is_quick_and_imports_no_spark() -> None:
    script = """
import json, runpy, sys, time
from airflow.sdk import dag
from airflow.providers.apache.spark.operators import spark_submit
start = time.process_time()
for file in sys.argv[1:]:
    runpy.run_path(file)
heavy = [name for name in ("pyspark", "pandas", "great_expectations") if name in sys.modules]
print(json.dumps({"seconds": time.process_time() - start, "heavy": heavy}))
"""
    files = [str(file) for file in sorted((ROOT / "dags").glob("*.py"))]
    assert files
    done = subprocess.run([sys.executable, "-c", script, *files], cwd=ROOT, capture_output=True, text=True, check=True)
    measured = json.loads(done.stdout.splitlines()[-1])
    assert measured["heavy"] == []
    assert measured["seconds"] < 5  # 1 s alone; processor time, more of it where cores are shared


def test_tasks_find_the_libraries_of_dag_files_imported() -> None:
    """Airflow's own process reads the file at its start; a task is a fork of it."""
    assert Path(sys.modules["airflow_local_settings"].__file__ or "").parent == ROOT / "include/plugins"
