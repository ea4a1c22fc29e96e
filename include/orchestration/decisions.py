"""A closed gate and the person who decides about it: who asks, what the question says, what the answer must hold.

The names of tables and expectations, and what a person wrote, are values here: never a template, never part of a shell's line.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from airflow.providers.standard.operators.hitl import HITLOperator
from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import Context, Param
from airflow.sdk.exceptions import AirflowException, AirflowSkipException

from include.orchestration.defaults import dag_of_run
from include.orchestration.gates import FAILURES
from spark_jobs.control.verdicts import CHOICES, RELEASE_ANYWAY, ROLL_BACK, WAIT, closed_verdicts
from spark_jobs.runtime import one_line
from spark_jobs.runtime.settings import Settings, read_settings

DECISION_DAG = "quality_decision"
LONGEST_REASON = 1000
LONGEST_FOUND = 200
REASON = Param(
    "",
    type="string",
    maxLength=LONGEST_REASON,
    title="Reason",
    description=f"Why you decide so: one line of 1 to {LONGEST_REASON} characters. control.decisions keeps it with your user name.",
)
NOTHING_CLOSED = "no gate is closed: nothing to decide"

Verdict = dict[str, Any]  # a row of spark_jobs.control.verdicts.closed_verdicts


def open_verdicts(settings: Settings) -> list[Verdict]:
    """The closed verdicts that still stop the pipeline: nobody decided about them, or somebody decided to wait."""
    closed = closed_verdicts(settings, "bronze", "silver", "gold")
    return [verdict for verdict in closed if verdict["decision"] is None or verdict["decision"]["choice"] == WAIT]


def undecided(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Those about which nobody has decided anything."""
    return [verdict for verdict in verdicts if verdict["decision"] is None]


def decision_run_id(verdicts: Sequence[Verdict]) -> str:
    """The run of `quality_decision` that asks about closed verdicts: named after the newest one's run and moment, so one for each."""
    newest = max(verdicts, key=lambda verdict: (verdict["_judged_at"], verdict["run_id"]))
    run = re.sub(r"[^A-Za-z0-9_.~:+-]", "-", newest["run_id"])[:150]  # what Airflow takes, however the gate was run
    return f"decision__{run}__{newest['_judged_at']:%Y%m%dT%H%M%S.%f}"


def waits_for(verdicts: Sequence[Verdict]) -> str:
    """What has to happen before the pipeline goes on; the person who decided to wait is named by `closed_line` beside it."""
    if asked := undecided(verdicts):
        return f"waiting for the decision in run {decision_run_id(asked)} of the DAG {DECISION_DAG} (Airflow: Required Actions)"
    return f"waiting, as was decided, until the gate is judged again or the DAG {DECISION_DAG} is triggered again"


class AskForDecision(TriggerDagRunOperator):
    """Triggers `quality_decision` once for each closed verdict; skipped when no gate is closed or somebody was asked before."""

    def __init__(self, **operator_args: Any) -> None:
        super().__init__(trigger_dag_id=DECISION_DAG, skip_when_already_exists=True, **operator_args)

    def execute(self, context: Context) -> None:
        """Find out whether there is something to decide, by the record: a gate task that merely broke asks nobody."""
        verdicts = undecided(open_verdicts(read_settings()))
        if not verdicts:
            raise AirflowSkipException("no gate is closed that nobody has decided about: nobody is asked")
        self.trigger_run_id = decision_run_id(verdicts)
        self.log.info("Asking in run %s of %s.", self.trigger_run_id, DECISION_DAG)
        super().execute(context)


class DecisionOperator(HITLOperator):
    """Asks an operator about the gates that are closed now. Returns choice, who and why; skipped when none is closed.

    An answer without a usable reason, or to a question that is no longer the one asked, is not taken: the task fails, its next
    try asks again.
    """

    def __init__(self, **operator_args: Any) -> None:
        super().__init__(subject="A quality gate is closed", options=list(CHOICES), **operator_args)

    def execute(self, context: Context) -> Any:
        """Ask, with the record as it is now; no template is rendered in what was found."""
        from spark_jobs.releases.releases import latest_release

        settings = read_settings()
        verdicts = open_verdicts(settings)
        if not verdicts:
            raise AirflowSkipException(NOTHING_CLOSED)
        ti = context["ti"]
        layers = sorted({(verdict["layer"], verdict["run_id"]) for verdict in verdicts})
        failures = [
            failure
            for layer, run_id in layers
            for failure in ti.xcom_pull(dag_id=dag_of_run(run_id), run_id=run_id, task_ids=f"{layer}_gate", key=FAILURES) or ()
        ]
        ti.xcom_push(key="asked", value=marks(verdicts))
        gates = " and ".join(dict.fromkeys(layer for layer, _ in layers))
        self.subject = f"Gate {gates} closed: release anyway, roll back or wait?"
        release = latest_release(settings)
        self.body = question(verdicts, failures, release.release_id if release else None, ti.log_url.split("/dags/")[0])
        return super().execute(context)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> dict[str, str]:
        """Check the answer, and that it is about what is closed now."""
        answer = read_answer(event)
        verdicts = open_verdicts(read_settings())
        if not verdicts:
            raise AirflowSkipException(f"{NOTHING_CLOSED} any more, so the answer of {answer['who']} was not recorded")
        if context["ti"].xcom_pull(task_ids=self.task_id, key="asked") != marks(verdicts):
            raise AirflowException(
                f"the answer of {answer['who']} was not taken: found other closed verdicts now than those it was asked about: "
                "read the new question and answer again"
            )
        super().execute_complete(context, event)
        return answer


def marks(verdicts: Sequence[Verdict]) -> list[str]:
    """What tells closed verdicts from others, in a form that survives XCom."""
    return sorted(f"{verdict['table']} {verdict['run_id']} {verdict['_judged_at'].isoformat()}" for verdict in verdicts)


def read_answer(event: Mapping[str, Any]) -> dict[str, str]:
    """Choice, who and why of a response; raises AirflowException, in one line that does not repeat the text, when one cannot be used."""
    who = str((event.get("responded_by_user") or {}).get("name") or "").strip()
    chosen = list(event.get("chosen_options") or ())
    why = (event.get("params_input") or {}).get("reason")
    if not who or len(chosen) != 1 or chosen[0] not in CHOICES:
        raise AirflowException(
            f"found {len(chosen)} choices by {who or 'nobody'}, expected one of {', '.join(CHOICES)} by a user: answer again"
        )
    if wrong := one_line.problem(why, most=LONGEST_REASON):
        raise AirflowException(f"the answer of {who} was not taken: reason: {wrong}: answer again")
    return {"choice": chosen[0], "who": who, "why": str(why)}


def skip_when_waiting(context: Context) -> None:
    """Raise AirflowSkipException when the operator decided to wait: then nothing is to be run."""
    if context["ti"].xcom_pull(task_ids="ask")["choice"] == WAIT:
        raise AirflowSkipException("decided to wait: nothing is run")


def question(verdicts: Sequence[Verdict], failures: Sequence[Mapping[str, str]], release: int | None, airflow_url: str) -> str:
    """The text of the question, as Markdown: what failed, where to read about it, what each choice does."""
    details = {(failure["table"], failure["expectation"]): failure for failure in failures}
    lines = ["| table | expectation | found | expected |", "|---|---|---|---|"]
    for verdict in verdicts:
        critical = [name for name in verdict["failed_expectations"] or () if not name.endswith(")")]  # others name their severity
        for name in critical or ["no verdict"]:
            detail = details.get((verdict["table"], name), {})
            lines.append(f"| {verdict['table']} | {name} | {_cell(detail.get('found'))} | {_cell(detail.get('expected'))} |")
    for run_id in sorted({verdict["run_id"] for verdict in verdicts}):
        page = f"{airflow_url}/dags/{dag_of_run(run_id)}/runs/{quote(run_id)}"
        of_airflow = f"[{run_id}]({page}); its tab *Quality* shows the rows"  # a run id of Airflow's has two underscores
        lines += ["", f"Judged in run {of_airflow if '__' in run_id else f'`{run_id}`, by hand'}."]
    lines += ["", "Reports (copy the address):", ""]
    lines += [f"- `{report}`" for report in dict.fromkeys(verdict["report"] for verdict in verdicts) if report]
    for decision in {str(verdict["decision"]): verdict["decision"] for verdict in verdicts if verdict["decision"]}.values():
        lines += ["", f"{_cell(decision['who'])} decided to wait at {decision['decided_at']:%Y-%m-%d %H:%M} UTC: {_cell(decision['why'])}"]
    standing = f"release {release}" if release else "no release: there is none yet"
    back = f"release {release}" if release else "what they were before the first batch"
    lines += [
        "",
        f"Readers see {standing}. Nothing goes on until you decide; the choice and your reason are kept in `control.decisions`.",
        "",
        f"- **{RELEASE_ANYWAY}**: these verdicts count as passed; a run of `medallion` starts at once and releases the rows as they are.",
        f"- **{ROLL_BACK}**: silver and gold return to {back}, and a run of `medallion` takes the later batches from bronze again. "
        "Mend the cause first, or the gate closes again.",
        f"- **{WAIT}**: nothing changes. Runs of `medallion` fail at once until the gate is judged again, or `{DECISION_DAG}` is triggered "
        "by hand and somebody decides otherwise.",
    ]
    return "\n".join(lines)


def _cell(text: object) -> str:
    """A value for a cell of a table: one line, as code, cut."""
    words = " ".join(str(text).split()).replace("|", "/").replace("`", "'") if text is not None else ""
    cut = words if len(words) <= LONGEST_FOUND else f"{words[:LONGEST_FOUND]}…"
    return f"`{cut}`" if cut else "see the report"
