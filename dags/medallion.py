"""Bronze to silver to gold to a release, every five minutes.

```
find_new_batches >> silver >> [bronze_gate, silver_gate] >> gold >> gold_gate >> release
                              [bronze_gate, silver_gate, gold_gate] >> ask_for_decision
```

**What it does.** Takes every whole bronze batch that the newest release lacks through silver and gold, and what a re-drive
changed in silver. Nothing passes a gate that is not judged good: gold starts after bronze's and silver's gates, and readers see new
rows only through the release, which names one version of every table. With nothing new, the first task ends the run within seconds;
when that lasts for longer than LEDGER_FRESHNESS_SECONDS (a day), one run goes on, so that bronze's gate records it as a failed
expectation.

**Two JVM starts.** A start costs 7 to 40 seconds, so only `silver` and `gold` are Spark jobs, one for all tables of a layer.
Gates and the release read Delta without Spark, in plain Python processes.

**Trigger by hand** to see new rows before the next five minutes are over (no parameter), or with `force` to go through all
steps when nothing is new, such as after an upgrade. Both are harmless: a second run changes nothing.
One run is active at a time; another one waits.

**When a task fails**, its log ends with one line: what was found, what was expected, what to do.

- `find_new_batches`: a gate is closed on record and nobody has decided to go on: the line names the run of `quality_decision` that
  waits for the answer, or who decided to wait and why. Answer under *Required Actions*, or trigger `quality_decision`.
  Or bronze or the list of releases cannot be read: is LEDGER_WAREHOUSE right, is the disk there?
- `silver`, `gold`: exit code 2: a setting is wrong; 3: a closed gate is on record; 5: another process held the tables for
  10 minutes. Mend that; the next run goes on where this one stood.
- `bronze_gate`, `silver_gate`, `gold_gate`: closed; the line names the failed expectations and the report. Readers keep the release
  before. `ask_for_decision` starts a run of `quality_decision`, in which an operator chooses: release anyway, roll back or wait.
- `release`: exit code 3: a table has no passed verdict for what it holds. Look at the gates of this run; trigger with `force`.

**A closed gate is told** to the webhook and the mail addresses of the settings, if there are any.

A failed run loses nothing and needs no clean-up: the next run repeats what is missing. Exit codes 2 and 3 are not retried,
others twice with growing pauses.

**Reports**: `LEDGER_HOME/quality`; the page of each table is in its gate's XCom (`tables`). Verdicts as rows: `control.quality_results`.

Airflow's *Backfill* form is not for this DAG, and refused: a run takes what is new, whatever its date. Rebuild days with `backfill_days`.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from airflow.sdk import CronTriggerTimetable, Param, TriggerRule, dag, task

from include.orchestration.alerts import alerts
from include.orchestration.assets import layer_assets
from include.orchestration.decisions import AskForDecision
from include.orchestration.defaults import DEFAULT_ARGS, NO_BACKFILL
from include.orchestration.gates import quality_gate
from include.orchestration.jobs import job, spark_job
from include.orchestration.progress import has_new_batches

GATE_LIMIT = timedelta(minutes=30)  # twice the wait for a lease and more: a gate that hangs must not stop the pipeline silently


@dag(
    dag_id="medallion",
    schedule=CronTriggerTimetable("*/5 * * * *", timezone="UTC", run_immediately=timedelta(0)),  # not at once when it is switched on
    catchup=False,
    max_active_runs=1,
    allowed_run_types=NO_BACKFILL,
    default_args=DEFAULT_ARGS,
    doc_md=__doc__,
    tags=["silver", "gold", "quality", "release"],
    params={
        "force": Param(
            False,
            type="boolean",
            title="Run even when nothing is new",
            description="Go through all steps, gates and release included, when the newest release already holds every bronze batch.",
        ),
    },
)
def medallion() -> None:
    """Wire the tasks of the run."""

    @task.short_circuit(doc_md="Does bronze hold batches that the newest release lacks? If not, the run ends here, without a JVM.")
    def find_new_batches(params: Mapping[str, Any] | None = None) -> bool:
        return has_new_batches(force=bool(params and params["force"]))

    judging: dict[str, Any] = {
        "execution_timeout": GATE_LIMIT,
        "on_failure_callback": alerts(
            "a quality gate did not open",
            "decide in Airflow, under Required Actions: release anyway, roll back or wait. Readers keep the release before.",
        ),
    }
    silver = spark_job("silver", doc_md="Parses and judges new bronze batches: valid rows, duplicates, quarantine, late rows.")
    bronze_gate = quality_gate("bronze", layer_assets("bronze"), **judging, doc_md="Judges the batches silver read.")
    silver_gate = quality_gate("silver", layer_assets("silver"), **judging, doc_md="Judges what silver wrote.")
    gold = spark_job("gold", doc_md="Brings every gold table up to silver, only after bronze and silver were judged good.")
    gold_gate = quality_gate("gold", layer_assets("gold"), **judging, doc_md="Judges what gold wrote.")
    release = job("release", execution_timeout=GATE_LIMIT, doc_md="Names one judged version of every table: what readers see from now on.")

    ask = AskForDecision(
        task_id="ask_for_decision",
        trigger_rule=TriggerRule.ALL_DONE,  # once every gate has spoken; nothing follows that could be let through
        doc_md="Starts a run of `quality_decision` when a gate is closed that nobody was asked about; skipped otherwise.",
    )

    find_new_batches() >> silver >> [bronze_gate, silver_gate] >> gold >> gold_gate >> release
    [bronze_gate, silver_gate, gold_gate] >> ask


medallion()
