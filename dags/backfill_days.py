"""Days rebuilt: silver and gold made anew from bronze, for the days of Airflow's *Backfill* form or any range by hand.

```
find_days >> rebuild >> released
             rebuild >> ask_for_decision
```

**When to use it**: rules have changed and old days are to be judged by the new ones; a correction or a repair of the code concerns
days that were processed before; an audit found a difference. **When not**:

- new data: `medallion` takes it by itself, late rows too, whatever day they belong to.
- rows in quarantine that a newer rule or a corrected value would let pass: `run redrive --rule NAME` takes just those.
- records that bronze lacks: `run replay --from TIME` fetches them from Kafka. A rebuild makes silver of what bronze holds.
- `medallion` failed or a gate is closed: decide, and `medallion` goes on where it stood.

**Whole days**: *Trigger*, *Backfill*, or `airflow backfill create --dag-id backfill_days --from-date 2024-05-01 --to-date 2024-05-31`.

- *Date range*: days by UTC, first and last both included; a time within the first day leaves that day out. Today is not offered before
  it has ended. Airflow makes one run a day at once: for a range of decades, trigger a run by hand.
- *Reprocess behaviour*: *missing runs* (`none`) takes days that have no run yet, *missing and errored* (`failed`) also those whose run
  failed, *all runs* (`completed`) all days. To rebuild a day a second time, choose *all runs*.
- *Max active runs*: how many days are shown as running. It changes nothing else: **all days share one Spark application**. The first
  day that starts leads for its neighbours, up to 366 days; the others wait for it without a process of their own, and end as it does.
  Days with a gap between them (as *missing and errored* may find them) are groups of their own, rebuilt one after the other.
- *Run backwards*: the last day leads. The rebuild itself always goes from the first day to the last.
- *Parameters*: `tables` and `dry_run` count for every day; `start` and `end` must stay empty. A run that exists keeps the parameters it
  had (a dry run stays one) unless *override parameters* is ticked.

**Any range, down to the minute**: trigger a run with `start`, `end` (left out itself), perhaps `tables`. It waits for another run by
hand. **With `dry_run`** nothing is changed: the log of `rebuild` tells rows, files and windows that it would touch.

**Live runs go on.** A rebuild goes in steps of some days and holds the tables for one step at a time; `medallion` and it wait for each
other and never write at once. Each step is judged by the gates and released before the next, by `rebuild` itself while it holds the
tables: readers see a day as it was or rebuilt, never half. (Tasks of their own would judge what a live run is halfway through.)

**Progress**: the log of `rebuild` in the run that leads (`find_days` of every other day names it): rows, days done, time left.
`control.backfills` keeps it. **Cancel**: *Cancel* on the form's banner fails the days that have not started. The day that leads goes on
for all of its days: mark its run as failed, and its application ends. Days that were released stay rebuilt, the others stay as they were.
Ask again for days of a cancelled backfill by a new one, with *missing and errored*: Airflow never starts their cleared runs.

**When a task fails**, its log ends with one line: what was found, what was expected, what to do. Nothing needs to be cleaned up.

- `find_days`: params that cannot be used, or the run that leads failed: look at that one. Mend it, then start the same backfill again
  with *missing and errored*: the rebuild goes on at its first unfinished step.
- `rebuild`: exit code 2: the range or a setting is wrong. 3: a gate is closed, for the days of this step or before: `ask_for_decision`
  asks, the old days stay in place. 5: another process held the tables for 10 minutes, and others (killed, disk full): tried again ten
  times, each of which goes on at the first unfinished step.

No run comes by itself, so the DAG is switched on from the start; while it is paused, a backfill waits.
"""

from airflow.sdk import Param, TriggerRule, dag, task

from include.orchestration.alerts import alerts
from include.orchestration.assets import layer_assets
from include.orchestration.backfill import FindDays, Rebuild, moment_param, tables_param, tell_release
from include.orchestration.decisions import AskForDecision
from include.orchestration.defaults import BACKFILL_DAG, DEFAULT_ARGS
from include.orchestration.jobs import spark_job
from include.orchestration.timetable import DaysOnRequest


@dag(
    dag_id=BACKFILL_DAG,
    schedule=DaysOnRequest(),
    catchup=False,
    max_active_runs=1,  # of runs by hand; a backfill brings its own number
    is_paused_upon_creation=False,  # a backfill of a paused DAG waits for ever, and without one nothing runs
    default_args=DEFAULT_ARGS,
    doc_md=__doc__,
    tags=["silver", "gold", "backfill", "release"],
    params={
        "start": moment_param(
            "Start", "First event time to rebuild, such as 2024-05-01T12:30Z; UTC unless it has a zone. Runs by hand only."
        ),
        "end": moment_param("End", "Event time before which to stop: it is left out itself. Runs by hand only."),
        "tables": tables_param(),
        "dry_run": Param(
            False,
            type="boolean",
            title="Dry run",
            description="Change nothing: tell in the log which rows, files and windows would be touched.",
        ),
    },
)
def backfill_days() -> None:
    """Wire the tasks of the run."""
    find_days = FindDays(
        task_id="find_days",
        retries=10,
        doc_md="Which days? Leads for the neighbours that wait too, or waits for the run that does. In a run by hand: checks the params.",
    )
    rebuild = spark_job(
        "backfill",
        task_id="rebuild",
        operator=Rebuild,
        retries=10,  # each goes on at the first unfinished step
        max_active_tis_per_dag=1,  # groups of days, and runs by hand: one application after the other
        on_failure_callback=alerts(
            "days were not rebuilt",
            "decide in Airflow, under Required Actions, if a gate is closed; otherwise mend what the line says and start it again.",
        ),
        doc_md="Rebuilds the days in steps, judges and releases each step. Its log shows the progress.",
    )

    @task(
        outlets=[*layer_assets("silver"), *layer_assets("gold")],  # judged good, step by step
        doc_md="Tells the release that readers see now.",
    )
    def released() -> None:
        tell_release()

    ask = AskForDecision(
        task_id="ask_for_decision",
        trigger_rule=TriggerRule.ALL_DONE,  # once the gates have spoken; nothing follows that could be let through
        doc_md="Starts a run of `quality_decision` when a gate is closed that nobody was asked about; skipped otherwise.",
    )

    find_days >> rebuild >> released()
    rebuild >> ask


backfill_days()
