"""The task of `redrive_rows`: which rows of quarantine are judged again, and the Spark job that does it.

What a person typed is checked by Airflow's form, here and again by the job. It reaches the job as arguments of their own, never
through a template or a shell.
"""

import re
from collections.abc import Mapping
from typing import Any

from airflow.sdk import Context, Param
from airflow.sdk.exceptions import AirflowFailException

from include.orchestration.jobs import SparkJob
from spark_jobs.lake.topics import TOPICS

TABLES = tuple(topic.quarantine.name for topic in TOPICS)
MOST_BATCHES = 2**53  # what a browser's numbers can tell apart
# The look-ahead is the end of the text; `$` would let a line end follow.
_RULE, _SOURCE = r"^[a-z][a-z0-9_]{0,99}(?![\s\S])", r"^[\w.#:/ -]{0,200}(?![\s\S])"


def _batch_param(title: str, description: str) -> Param:
    return Param(None, type=["null", "integer"], minimum=0, maximum=MOST_BATCHES, title=title, description=description)


PARAMS = {
    "rule": Param(
        None, type="string", pattern=_RULE, title="Rule", description="Judge the rows again that break this rule, such as amount_scale."
    ),
    "table": Param(
        None, type=["null", "string"], enum=[None, *TABLES], title="Table", description="Only rows of this table; empty: of every table."
    ),
    "first_batch": _batch_param("First batch", "Only this bronze batch and later."),
    "last_batch": _batch_param("Last batch", "Only this bronze batch and earlier."),
    "source": Param(
        "", type="string", pattern=_SOURCE, title="Source", description="Only rows of this source: a topic, or file:NAME of an import."
    ),
    "dry_run": Param(
        True, type="boolean", title="Dry run", description="Change nothing: the log says how many rows would be judged again."
    ),
}


def arguments(params: Mapping[str, Any]) -> list[str]:
    """The command line of the job; raises AirflowFailException, in one line, for what cannot be used."""
    rule, table, source, dry_run = params.get("rule"), params.get("table"), params.get("source") or "", params.get("dry_run", True)
    batches = [params.get("first_batch"), params.get("last_batch")]
    if not isinstance(rule, str) or not re.match(_RULE, rule):
        raise AirflowFailException("found no name of a rule, expected one such as amount_scale: trigger again and fill it in")
    if table is not None and table not in TABLES:
        raise AirflowFailException(f"found a table that has no quarantine, expected one of {', '.join(TABLES)}, or none")
    if not isinstance(source, str) or not re.match(_SOURCE, source):
        raise AirflowFailException("found a source that is none, expected a topic, or file:NAME of an import")
    if not all(each is None or (type(each) is int and 0 <= each <= MOST_BATCHES) for each in batches) or type(dry_run) is not bool:
        raise AirflowFailException(
            "found batches or dry_run that are not allowed, expected whole numbers from 0 on, or none; true or false"
        )
    named = {"table": table, "first-batch": batches[0], "last-batch": batches[1], "source": source or None}
    chosen = [f"--{name}={value}" for name, value in named.items() if value is not None]
    return ["redrive", f"--rule={rule}", *chosen, *(["--dry-run"] if dry_run else [])]


class Redrive(SparkJob):
    """Judges again what the params of the run choose."""

    def execute(self, context: Context) -> None:
        """Check the params, log the command and run it; raises AirflowFailException for params that cannot be used."""
        self.application_args = arguments(context["params"])
        self.log.info("Runs: spark_jobs.run %s", " ".join(self.application_args))
        super().execute(context)
        if "--dry-run" in self.application_args:
            self.log.info("A dry run: nothing was changed. Trigger again without it to judge these rows.")
