"""Asks what to do about a closed gate: release anyway, roll back or wait.

```
ask >> decide >> start_medallion
```

**What it does.** Asks an operator, who answers in the UI: *Browse*, *Required Actions*, or the tab of the task `ask`. The question
names the expectations that failed, what was found and expected, the report, and what each choice does. A reason is required; it is
kept in `control.decisions` with the user who is logged in.

- **release anyway**: the closed verdicts count as passed. A run of `medallion` starts at once and releases the rows as they are.
- **roll back**: silver and gold return to the last release, all tables together, and a run of `medallion` takes the later batches
  from bronze again. Nothing is lost: bronze holds every record. *Mend the cause first*, or the gate closes again.
- **wait**: nothing changes. Runs of `medallion` fail within seconds and say who decided to wait, and why.

**Who starts it**: a run of `medallion` whose gate closed, once for each closed verdict. Its own DAG, so that an open question blocks
no other run. One question is open at a time; another one waits behind it.

**Trigger it by hand** after somebody decided to wait, to decide otherwise (no parameter). With no gate closed, every task is skipped
and nothing changes. After the gate was run again and passed, nobody needs to answer: an answer then is not recorded.

**When a task fails**

- `ask`: the answer was not taken: without a reason of one line and at most 1000 characters, or the gate was judged again meanwhile.
  The task asks again within seconds: answer the new question.
- `decide`: exit code 5: a job held the tables for 10 minutes. A roll-back is recorded only while no job writes them, so nothing was
  recorded; it is tried again. A decision that was recorded is carried out in any case: the next job finishes a roll-back that was
  interrupted.
- `start_medallion`: Airflow could not make the run: trigger `medallion` by hand, with `force`.

Without Airflow: `python -m spark_jobs.run decide release-anyway|roll-back|wait --who NAME --why TEXT`.
"""

from datetime import timedelta

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import dag

from include.orchestration.decisions import DECISION_DAG, REASON, DecisionOperator, skip_when_waiting
from include.orchestration.defaults import ON_REQUEST
from include.orchestration.jobs import job


@dag(
    dag_id=DECISION_DAG,
    schedule=None,
    doc_md=__doc__,
    tags=["quality", "human in the loop"],
    **ON_REQUEST,
)
def quality_decision() -> None:
    """Wire the tasks of the run."""
    ask = DecisionOperator(
        task_id="ask",
        params={"reason": REASON},
        retries=1000,  # a try is an answer that cannot be used: whoever gave it is asked again
        retry_delay=timedelta(seconds=1),
        max_retry_delay=timedelta(minutes=1),
        doc_md="Waits for an operator's answer, in state *awaiting input*: no process runs meanwhile.",
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
        conf={"force": True},
        pre_execute=skip_when_waiting,
        doc_md="Starts a run of `medallion`, so that the release comes at once; skipped when the decision is to wait.",
    )
    ask >> decide >> start_medallion


quality_decision()
