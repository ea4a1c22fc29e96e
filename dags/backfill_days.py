"""Backfill: rebuild silver and gold of some days, or of any range, from bronze.

Use it when old days must follow changed rules or repaired code, or when an audit found a difference.
Do not use it for new or late data (`medallion` takes it), quarantined rows (`run redrive`) or records that bronze lacks (`run replay`).
Live runs continue. Readers see each day as it was or rebuilt, never half.

**When a task fails**, its log ends with one line: what was found, what was expected, what to do. Nothing needs to be cleaned up.

- `find_days`: invalid params. Correct them, and trigger again.
- `rebuild`, exit code 2: the range or a setting is wrong. Exit code 3: a gate is closed, for the days of this step or for live rows (then
  nothing of the step was rebuilt); `ask_for_decision` asks an operator, once for each cause. Exit code 5: another process held the tables
  for 10 minutes. This one and other failures (killed, disk full) are retried ten times, each time from the first unfinished step.
  Repair the cause, then start the same backfill again with *missing and errored*.

**Whole days**: *Trigger*, *Backfill*, or `airflow backfill create --dag-id backfill_days --from-date 2024-05-01 --to-date 2024-05-31`.

- *Date range*: days in UTC, first and last included. A time within the first day excludes that day. Today is available after it has
  ended. Airflow creates one run for each day at once; for a range of decades, trigger a run by hand.
- *Reprocess behaviour*: *missing runs* (`none`) takes days without a run, *missing and errored* (`failed`) also days whose run failed,
  *all runs* (`completed`) all days. To rebuild a day a second time, choose *all runs*.
- *Max active runs*: how many days may be rebuilt together. **Neighbouring days share one Spark application**: a run whose turn it is
  rebuilds its own day and the days beside it whose runs wait, too; their tasks `rebuild` then end at once. Choose as many as the range
  has days: a waiting run has no process.
- *Run backwards*: the last days come first. An application still goes from its first day to its last.
- *Parameters*: `tables` and `dry_run` apply to every day; `start` and `end` must stay empty. An existing run keeps its parameters (a
  dry run stays one) unless *override parameters* is ticked.

**Any range, down to the minute**: trigger a run with `start`, `end` (excluded) and perhaps `tables`. Runs by hand wait for each other.
**With `dry_run`** nothing changes: the log of `rebuild` shows the rows, files and windows that it would touch.

**Steps.** A rebuild works in steps of some days and holds the tables for one step at a time. It and `medallion` never write at once.
`rebuild` itself judges and releases each step while it holds the tables; gate tasks of their own would judge half-written live runs.

**Progress**: the log of the task `rebuild` that runs shows rows, days done and time left; `control.backfills` keeps them. **To cancel**:
*Cancel* on the form's banner fails the days that have not started. Then mark the running ones as failed: the application ends. Released
days stay rebuilt, the others stay as they were. For days of a cancelled backfill, start a new backfill with *missing and errored*,
because Airflow never starts their cleared runs. **To rebuild a day again**, clear its whole run: `rebuild` alone may find its day done.

The DAG is on from the start and has no scheduled runs. While it is paused, a backfill waits. More: `include/docs/backfill.md`.
"""

import logging
from collections.abc import Mapping
from typing import Any

from airflow.sdk import Param, TriggerRule, dag, task

from include.orchestration.alerts import alerts
from include.orchestration.assets import layer_assets, tell_release
from include.orchestration.backfill import Rebuild, find_range, report_release, tables_param, time_param
from include.orchestration.decisions import AskForDecision
from include.orchestration.defaults import BACKFILL_DAG, DEFAULT_ARGS, about
from include.orchestration.jobs import spark_job
from include.orchestration.timetable import DaysOnRequest

log = logging.getLogger(__name__)


@dag(
    dag_id=BACKFILL_DAG,
    schedule=DaysOnRequest(),
    catchup=False,
    max_active_runs=1,  # of runs by hand; a backfill brings its own number
    is_paused_upon_creation=False,  # a backfill of a paused DAG waits for ever, and without one nothing runs
    default_args=DEFAULT_ARGS,
    **about(__doc__),
    tags=["silver", "gold", "backfill", "release"],
    params={
        "start": time_param(
            "Start", "First event time to rebuild, such as 2024-05-01T12:30Z; UTC unless it has a zone. Leave empty in a backfill."
        ),
        "end": time_param("End", "Event time at which to stop (excluded). Leave empty in a backfill."),
        "tables": tables_param(),
        "dry_run": Param(
            False,
            type="boolean",
            title="Dry run",
            description="Change nothing: the log shows the rows, files and windows that would be touched.",
        ),
    },
)
def backfill_days() -> None:
    """Wire the tasks of the run."""

    @task(multiple_outputs=False, doc_md="Asks for the run's own day; of a run by hand, checks the params.")
    def find_days(params: Mapping[str, Any] | None = None, dag_run: Any = None) -> dict[str, Any]:
        asked = find_range(dag_run, params or {})
        log.info("This run asks for %s.", asked)
        return asked.to_xcom()

    rebuild = spark_job(
        "backfill",
        task_id="rebuild",
        operator=Rebuild,
        retries=10,  # each continues at the first unfinished step
        max_active_tis_per_dag=1,  # one application after the other: the days that are asked for meanwhile share the next one
        on_failure_callback=alerts(
            "days were not rebuilt",
            "if a gate is closed, decide in Airflow under Required Actions; otherwise repair what the line names and start it again.",
        ),
        doc_md="Rebuilds the days in steps, judges and releases each step. Its log shows the progress.",
    )

    @task(
        outlets=[*layer_assets("silver"), *layer_assets("gold")],  # judged good, step by step
        doc_md="Logs the release that readers see now.",
    )
    def released(outlet_events: Any = None) -> None:
        report_release()
        tell_release(outlet_events, [*layer_assets("silver"), *layer_assets("gold")])

    ask = AskForDecision(
        task_id="ask_for_decision",
        trigger_rule=TriggerRule.ALL_DONE,  # after the gates, whatever they said; no task follows
        doc_md="Starts a run of `quality_decision` if a gate is closed and no question is open; skipped otherwise.",
    )

    find_days() >> rebuild >> released()
    rebuild >> ask


backfill_days()
