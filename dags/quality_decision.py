"""Asks an operator about a closed gate: release anyway, roll back or wait.

Answer in the UI: *Browse*, *Required Actions*, or the tab of the task `ask`. A reason is required.
A run of `medallion` starts it once for each closed verdict. Trigger it by hand to decide otherwise after *wait* (no parameter).
With no gate closed, every task is skipped and nothing changes.

**When a task fails**

- `ask`: the answer was not accepted: its reason is not one line of at most 1000 characters, or another table or expectation has closed
  meanwhile. `ask_again` starts another run within seconds, whose question says why: answer that one. If another operator has decided
  meanwhile, the task names that decision, and nobody is asked again.
- `decide`: exit code 5: a job held the tables for 10 minutes. A roll-back is recorded only while no job writes them, so nothing was
  recorded; the task is retried. A recorded decision is always carried out: the next job finishes an interrupted roll-back.
- `start_medallion`: Airflow could not create the run: trigger `medallion` by hand.

**The choices.** The question names the expectations that failed, what was found and expected, the report, and what each choice does.

- **release anyway**: the closed verdicts count as passed. A run of `medallion` starts at once and releases the rows as they are.
- **roll back**: silver and gold return to the newest release, all tables together. A run of `medallion` then takes the later batches
  from bronze again. Nothing is lost: bronze holds every record. *Repair the cause first*, or the gate closes again.
- **wait**: nothing changes. Runs of `medallion` fail within seconds and name the operator who decided to wait, and why.

`control.decisions` keeps choice, reason and user of every answer. One question is open at a time, one for each cause: verdicts on the
same table, version, batches and expectations are one question. If the gate is run again and passes, a late answer changes nothing.

Without Airflow: `python -m spark_jobs.run decide release-anyway|roll-back|wait --who NAME --why TEXT`.
"""

from datetime import timedelta

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import TriggerRule, dag

from include.orchestration.decisions import DECISION_DAG, REASON, AskForDecision, DecisionOperator, skip_when_waiting
from include.orchestration.defaults import ON_REQUEST, about
from include.orchestration.jobs import job
from include.orchestration.timetable import OnRequest


@dag(
    dag_id=DECISION_DAG,
    schedule=OnRequest(),
    **about(__doc__),
    tags=["quality", "human in the loop"],
    **ON_REQUEST,
)
def quality_decision() -> None:
    """Wire the tasks of the run."""
    ask = DecisionOperator(
        task_id="ask",
        params={"reason": REASON},
        retries=1000,  # of a process that died, or that Airflow took for dead: the same question again
        retry_delay=timedelta(seconds=1),
        max_retry_delay=timedelta(minutes=1),
        doc_md="Waits for an operator's answer in state *awaiting input*, without a process.",
    )
    decide = job(
        "decide",
        "{{ ti.xcom_pull(task_ids='ask')['choice'] | replace(' ', '-') }}",
        "--who={{ ti.xcom_pull(task_ids='ask')['who'] }}",
        "--why={{ ti.xcom_pull(task_ids='ask')['why'] }}",
        doc_md="Records the decision and carries it out.",
    )
    start_medallion = TriggerDagRunOperator(
        task_id="start_medallion",
        trigger_dag_id="medallion",
        pre_execute=skip_when_waiting,
        doc_md="Starts a run of `medallion`, so that the release comes at once; skipped if the decision is to wait.",
    )
    ask_again = AskForDecision(
        task_id="ask_again",
        trigger_rule=TriggerRule.ONE_FAILED,
        doc_md="Starts another run of this DAG after an answer that could not count, which says why; skipped otherwise.",
    )
    ask >> decide >> start_medallion
    ask >> ask_again


quality_decision()
