"""`make demo GATE=closed`: a bad batch after the good release. Silver's gate closes, readers keep the release, Airflow asks a person."""

import time

from include.demo.reconciliation import read_gates
from include.demo.waiting import Clock
from include.producer import Disturbances, generated_sources, plan_messages, publish
from include.stack.airflow_api import AirflowApi
from spark_jobs.releases.releases import newest_release
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.settings import Settings, read_endpoints

_VALID, _MALFORMED = 200, 800
_RUN_SECONDS = 120  # until the watcher has started a run, and until a run asks for the decision
_MEDALLION_SECONDS = 600


def send_bad_batch(settings: Settings) -> None:
    """Send 200 generated transactions, and 800 that break rules. Raises LedgerError when Kafka does not take them all."""
    sources = generated_sources(_MALFORMED, seed=1, only=["transactions"])
    plan = list(plan_messages(sources, Disturbances(malformed=1.0, seed=1)))
    valid, malformed = ([each for each in plan if bool(each.injected) is is_malformed] for is_malformed in (False, True))
    if not publish(settings.broker(), [*valid[:_VALID], *malformed[:_MALFORMED]]).is_delivered:
        raise LedgerError(f"Kafka at {settings.broker()} did not take all {_VALID + _MALFORMED} messages of the bad batch: is it up?")


def show(settings: Settings, api: AirflowApi, runs_before: list[str], announce: Clock) -> None:
    """Follow the bad batch, which bronze holds, to the question. Raises LedgerError when the gate stays open or nobody is asked."""
    before = newest_release(settings)
    run_id = _new_run(api, "medallion", runs_before)
    announce(f"new batches in bronze have started run {run_id} of medallion")
    state = api.wait_for_run("medallion", run_id, _MEDALLION_SECONDS, announce)
    closed = [gate for gate in read_gates(settings) if not gate.passed]
    if state != "failed" or not closed:
        raise LedgerError(
            f"run {run_id} of medallion ended as {state}, expected a closed gate after "
            f"{_MALFORMED} malformed records of {_VALID + _MALFORMED:,}"
        )
    question = _new_run(api, "quality_decision", [])
    for gate in closed:
        print(f"\nGate {gate.layer}: CLOSED by {', '.join(gate.failed_expectations)}, report {gate.report}")
    url = read_endpoints(settings.home)["airflow_url"]
    print(f"Readers see release {newest_release(settings).release_id}, as before the bad batch (release {before.release_id}).")
    print(f"What was found: {url}/plugin/quality")
    print(f"The decision (release anyway, roll back or wait): {url}/dags/quality_decision/runs/{question}, tab Required Actions")


def _new_run(api: AirflowApi, dag_id: str, known: list[str]) -> str:
    deadline = time.monotonic() + _RUN_SECONDS
    while not (new := [run_id for run_id in api.runs(dag_id) if run_id not in known]):
        if time.monotonic() > deadline:
            raise LedgerError(f"found no new run of {dag_id} within {_RUN_SECONDS} s: is the DAG switched on, does the triggerer run?")
        time.sleep(1)
    return new[0]
