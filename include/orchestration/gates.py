"""Quality gates as tasks: what a gate says decides whether the tasks after it run."""

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from airflow.sdk import Asset, Context
from airflow.sdk.exceptions import AirflowFailException

from include.orchestration.jobs import Job, job_error
from include.orchestration.pages import airflow_url, report_url, with_pages
from spark_jobs.runtime.errors import GateClosed
from spark_jobs.runtime.log_lines import error_line

NAMES_SHOWN, FOUND_SHOWN = 20, 100
OPENING = ("passed", "skipped")


@dataclass(frozen=True)
class Answer:
    """What a gate's process said of its layer: passed, closed or skipped (nothing new to judge); `tables` has facts of each verdict."""

    verdict: str
    failed: list[dict[str, str]] = field(default_factory=list)
    report: str | None = None
    tables: dict[str, dict[str, Any]] = field(default_factory=dict)


def quality_gate(layer: str, outlets: Sequence[Asset], **operator_args: Any) -> "QualityGate":
    """The task that judges what the layer's job wrote; `outlets` are the tables it answers for."""
    return QualityGate(layer=layer, task_id=f"{layer}_gate", outlets=list(outlets), **operator_args)


class QualityGate(Job):
    """Runs `spark_jobs.run gate LAYER` and reads its verdict. Open only on a clear yes: any doubt fails the task.

    A skipped verdict (nothing new since the last passed one) counts as passed, and is no Airflow skip: gold must still
    run when its last try failed, and with a skip that would need a trigger rule that also lets unjudged data through.
    """

    def __init__(self, *, layer: str, **operator_args: Any) -> None:
        super().__init__(arguments=["gate", layer], **operator_args)
        self.layer = layer

    def execute(self, context: Context) -> dict[str, Any]:
        """Returns verdict, report and tables; raises AirflowFailException, which is not retried, when the gate is closed."""
        with tempfile.TemporaryDirectory(prefix="gate-") as folder:
            file = Path(folder) / "verdict.json"
            exit_code, output = self.run_process(context, *self.arguments, "--verdict", str(file))
            verdict = read_answer(file)
        if verdict:
            airflow = airflow_url(context["ti"])
            tables = {name: facts | {"report": report_url(facts.get("report"), airflow)} for name, facts in verdict.tables.items()}
            verdict = replace(verdict, report=report_url(verdict.report, airflow), tables=tables)
        if exit_code == GateClosed.exit_code:
            raise AirflowFailException(closed_message(self.layer, verdict, with_pages(output, context["ti"])))
        if exit_code != 0:
            raise job_error(f"gate {self.layer}", exit_code, output)
        if verdict is None or verdict.verdict not in OPENING:
            found = "no verdict" if verdict is None else f"verdict {verdict.verdict!r}"
            raise AirflowFailException(f"gate {self.layer}: found {found}, expected passed or skipped: it counts as closed")
        for asset in self.outlets:
            context["outlet_events"][asset].extra = {"verdict": verdict.verdict, **verdict.tables.get(asset.name, {})}
        self.log.info("Gate %s: %s. Report: %s", self.layer, verdict.verdict, verdict.report)
        return {"verdict": verdict.verdict, "report": verdict.report, "tables": verdict.tables}


def read_answer(file: Path) -> Answer | None:
    """What a gate's process wrote, or None where there is nothing that can be read."""
    try:
        written = json.loads(file.read_text())
        return Answer(
            verdict=str(written["verdict"]),
            failed=[
                {name: " ".join(str(each.get(name, "")).split()) for name in ("table", "expectation", "found", "expected")}
                for each in written.get("failed") or ()
            ],
            report=written.get("report"),
            tables={name: dict(facts) for name, facts in (written.get("tables") or {}).items()},
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def closed_message(layer: str, verdict: Answer | None, output: str) -> str:
    """One line: the gate, the expectations that failed, what was found, the report; what the job says where there is no verdict."""
    if verdict is None or not verdict.failed:
        return f"gate {layer} is closed: {error_line(output)}"
    more = len(verdict.failed) - NAMES_SHOWN
    shown = ", ".join(
        f"{each['table']} {each['expectation']} (found {each['found'][:FOUND_SHOWN]}, expected {each['expected'][:FOUND_SHOWN]})"
        for each in verdict.failed[:NAMES_SHOWN]
    )
    return f"gate {layer} is closed: failed {shown}{f' and {more} more' if more > 0 else ''}; report: {verdict.report}"
