"""Bronze to silver to gold to a release, whenever bronze has something new.

It takes every bronze batch that the newest release lacks through silver, gold and their gates, and publishes the result as a release.
The asset `new_batches` starts it within seconds of a new batch, never two runs at once; a run that failed is started again after five
minutes. A second run changes nothing, a failed run loses nothing, and readers see new rows only through a release.

**When a task fails**, its log ends with one line: what was found, what was expected, what to do. No clean-up is needed: the next run
repeats what is missing. Exit codes 2 and 3 are not retried, others twice with growing pauses.

- `silver`, without an exit code: a gate is closed and no decision lets the run continue. The line names the run of `quality_decision`
  that waits for the answer, or the operator who decided to wait, and why. Answer under *Required Actions*, or trigger `quality_decision`.
  Otherwise bronze or the list of releases cannot be read: is LEDGER_WAREHOUSE right, is the disk there?
- `silver`, `gold`: exit code 2: a setting is wrong. 3: a closed gate is on record. 5: another process held the tables for 10 minutes.
  Correct it; the next run continues where this one stopped.
- `bronze_gate`, `silver_gate`, `gold_gate`: closed. The line names the failed expectations and the report. Readers keep the previous
  release. `ask_for_decision` starts a run of `quality_decision`, in which an operator chooses: release anyway, roll back or wait.
- `release`: exit code 3: a table has no passed verdict for what it holds. See the gates of this run; trigger with `force`.

A closed gate sends an alert.

**To run every step when nothing is new**, such as after an upgrade, trigger it by hand with `force`.

**When nothing is new**, no run starts, and one that you trigger ends within seconds. If nothing new comes for longer than
LEDGER_FRESHNESS_SECONDS (a day), one run starts, so that bronze's gate records a failed expectation.

**Two JVM starts.** A start costs 7 to 40 seconds, so only `silver` and `gold` are Spark jobs, one for all tables of a layer. Gates and
the release read Delta in plain Python processes.

**Reports** are in `LEDGER_HOME/quality`; each gate's XCom (`tables`) has the page of each table, `control.quality_results` the verdicts
as rows.

Airflow's *Backfill* form is refused here: a run takes what is new, whatever its date. To rebuild days, use `backfill_days`.
"""

from datetime import timedelta
from typing import Any

from airflow.sdk import Param, TriggerRule, dag

from include.orchestration.alerts import alerts
from include.orchestration.assets import RELEASE, layer_assets, tell_release, topic_assets
from include.orchestration.decisions import AskForDecision
from include.orchestration.defaults import DEFAULT_ARGS, NO_BACKFILL, RELEASE_TASK, about
from include.orchestration.gates import quality_gate
from include.orchestration.jobs import job, spark_job
from include.orchestration.new_batches import NEW_BATCHES
from include.orchestration.progress import TakeNewBatches

GATE_LIMIT = timedelta(minutes=30)  # twice the wait for a lease and more: a gate that hangs must not stop the pipeline silently


@dag(
    dag_id="medallion",
    schedule=[NEW_BATCHES],
    catchup=False,
    max_active_runs=1,
    allowed_run_types=NO_BACKFILL,
    default_args=DEFAULT_ARGS,
    **about(__doc__),
    tags=["silver", "gold", "quality", "release"],
    params={
        "force": Param(
            False,
            type="boolean",
            title="Run even when nothing is new",
            description="Run every step, gates and release included, even if the newest release already holds every bronze batch.",
        ),
    },
)
def medallion() -> None:
    """Wire the tasks of the run."""

    judging: dict[str, Any] = {
        "execution_timeout": GATE_LIMIT,
        "on_failure_callback": alerts(
            "a quality gate did not open",
            "decide in Airflow, under Required Actions: release anyway, roll back or wait. Readers keep the previous release.",
        ),
    }
    silver = spark_job(
        "silver",
        operator=TakeNewBatches,
        doc_md="Parses and judges new bronze batches: valid rows, duplicates, quarantine, late rows. Ends the run where none is new.",
    )
    topics, (bronze, silver_tables, gold_tables) = topic_assets(), map(layer_assets, ("bronze", "silver", "gold"))
    bronze_gate = quality_gate("bronze", bronze, inlets=topics, **judging, doc_md="Judges the batches that silver read.")
    silver_gate = quality_gate("silver", silver_tables, inlets=bronze, **judging, doc_md="Judges what silver wrote.")
    gold = spark_job("gold", doc_md="Brings every gold table up to silver, after the gates of bronze and silver.")
    gold_gate = quality_gate("gold", gold_tables, inlets=silver_tables, **judging, doc_md="Judges what gold wrote.")
    release = job(
        RELEASE_TASK,
        inlets=[*bronze, *silver_tables, *gold_tables],
        outlets=[RELEASE],
        tell=tell_release,
        execution_timeout=GATE_LIMIT,
        doc_md="Publishes one judged version of every table for readers.",
    )

    ask = AskForDecision(
        task_id="ask_for_decision",
        trigger_rule=TriggerRule.ALL_DONE,  # after every gate, whatever it said; no task follows
        doc_md="Starts a run of `quality_decision` if a gate is closed and no question is open; skipped otherwise.",
    )

    silver >> [bronze_gate, silver_gate] >> gold >> gold_gate >> release
    [bronze_gate, silver_gate, gold_gate] >> ask


medallion()
