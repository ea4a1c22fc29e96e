"""A closed gate and the person who decides about it: who asks, what the question says, what the answer must hold.

The names of tables and expectations, and what a person wrote, are values here: never a template, never part of a shell's line.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from airflow.providers.standard.operators.hitl import HITLOperator
from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import Context, Param
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from include.orchestration.defaults import PIPELINE_DAG, dag_of_run
from include.orchestration.pages import decisions_url, report_url
from spark_jobs.control.verdicts import (
    CHOICES,
    RELEASE_ANYWAY,
    ROLL_BACK,
    UNUSED,
    WAIT,
    Decision,
    Finding,
    Verdict,
    closed_verdicts,
    newest_verdicts,
    read_decisions,
    without_row,
)
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


def open_verdicts(settings: Settings) -> list[Verdict]:
    """The closed verdicts that still stop the pipeline: nobody decided about them, or a person decided to wait."""
    closed = closed_verdicts(settings, "bronze", "silver", "gold")
    return [verdict for verdict in closed if verdict.decision is None or verdict.decision.choice == WAIT]


def undecided(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Those about which nobody has decided anything."""
    return [verdict for verdict in verdicts if verdict.decision is None]


def decision_run_id(verdicts: Sequence[Verdict], decisions: Iterable[Decision] = ()) -> str:
    """The run of `quality_decision` that asks about closed verdicts: named after run and moment of their newest cause, so one for each.

    Of `decisions`, the answers that such a run was given and that could not count: after each, another run asks again.
    """
    run_id, at = max((verdict.cause or (verdict.run_id, verdict.judged_at) for verdict in verdicts), key=lambda cause: (cause[1], cause[0]))
    run = re.sub(r"[^A-Za-z0-9_.~:+-]", "-", run_id)[:150]  # what Airflow takes, however the gate was run
    first = f"decision__{run}__{at:%Y%m%dT%H%M%S.%f}"
    times = sum(each.layer == UNUSED and f"{each.run_id}__".startswith(f"{first}__") for each in decisions)
    return f"{first}__{times + 1}" if times else first


def uncounted(verdicts: Sequence[Verdict], decisions: Iterable[Decision]) -> list[Decision]:
    """The answers that could not count, given since the first of these verdicts was recorded; in the order of `decisions`."""
    since = min((verdict.judged_at for verdict in verdicts), default=None)
    return [each for each in decisions if each.layer == UNUSED and since and each.decided_at >= since]


def live_verdicts(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Of closed verdicts those of bronze and silver on what runs of `medallion` brought."""
    return [each for each in verdicts if each.layer != "gold" and "__" in each.run_id and dag_of_run(each.run_id) == PIPELINE_DAG]


def waits_for(verdicts: Sequence[Verdict], decisions: Iterable[Decision] = ()) -> str:
    """What has to happen before the pipeline continues; the person who decided to wait is named by `closed_line` beside it."""
    if asked := undecided(verdicts):
        return f"waiting for the decision in run {decision_run_id(asked, decisions)} of the DAG {DECISION_DAG} (Airflow: Required Actions)"
    return f"waiting, as was decided, until the gate is judged again or the DAG {DECISION_DAG} is triggered again"


class AskForDecision(TriggerDagRunOperator):
    """Triggers `quality_decision` once for each cause, and after each answer that could not count; skipped when nothing is to be asked.

    Airflow keeps the text of a question for every try of its task. So what is asked again is asked by another run.
    """

    def __init__(self, **operator_args: Any) -> None:
        super().__init__(trigger_dag_id=DECISION_DAG, skip_when_already_exists=True, **operator_args)

    def execute(self, context: Context) -> None:
        """Find out whether there is something to decide, by the record: a gate task that merely broke asks nobody."""
        settings = read_settings()
        verdicts = undecided(open_verdicts(settings))
        if not verdicts:
            raise AirflowSkipException("no gate is closed that nobody has decided about: nobody is asked")
        self.trigger_run_id = decision_run_id(verdicts, read_decisions(settings))
        self.log.info("Asking in run %s of %s.", self.trigger_run_id, DECISION_DAG)
        super().execute(context)


class DecisionOperator(HITLOperator):
    """Asks an operator about the gates that are closed now. Returns choice, who and why; skipped when none is closed.

    An answer counts if every gate that is closed now was asked about: the same tables, versions, batches and expectations, whichever run
    judged them. One that does not count is kept in control.decisions, and the next question, of another run, says why.
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
        ti.xcom_push(key="asked", value=[verdict.judged for verdict in verdicts])
        layers = sorted({verdict.layer for verdict in verdicts})
        gates = f"The gate of {layers[0]} is" if len(layers) == 1 else f"The gates of {' and '.join(layers)} are"
        self.subject = f"{gates} closed: release anyway, roll back or wait?"
        release = latest_release(settings)
        unused = uncounted(verdicts, read_decisions(settings))
        self.body = question(verdicts, release.release_id if release else None, ti.log_url.split("/dags/")[0], unused[:1])
        return super().execute(context)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> dict[str, str]:
        """Check the answer, and that it is about what is closed now."""
        from spark_jobs.releases.decisions import keep_unused

        settings, run_id = read_settings(), str(context.get("run_id"))
        try:
            answer = read_answer(event)
        except AirflowException as error:
            keep_unused(settings, "an answer", str((event.get("responded_by_user") or {}).get("name")), str(error), run_id)
            raise AirflowFailException(str(error)) from None
        verdicts = open_verdicts(settings)
        asked = set(context["ti"].xcom_pull(task_ids=self.task_id, key="asked") or ())
        if verdicts and asked >= {verdict.judged for verdict in verdicts}:
            super().execute_complete(context, event)
            return answer
        since = [f"{verdict.judged} closed too" for verdict in verdicts if verdict.judged not in asked]
        decided = _decided(settings, asked)
        because = "; ".join([*since, *dict.fromkeys(decided)]) or "the gate was judged again and passed"
        keep_unused(settings, answer["choice"], answer["who"], f"{answer['why']} (not carried out: {because})", run_id)
        refused = f"the answer of {answer['who']}, {answer['choice']}, was not carried out: {because}"
        if verdicts:
            raise AirflowFailException(f"{refused}: read the new question and answer again")
        if decided:
            raise AirflowFailException(f"{NOTHING_CLOSED} any more; {refused}; trigger {DECISION_DAG} to roll back nevertheless")
        raise AirflowSkipException(f"{NOTHING_CLOSED} any more; {refused}")


def _decided(settings: Settings, asked: Collection[str]) -> list[str]:
    """What other people have decided about what was asked."""
    about = [each for each in newest_verdicts(settings).values() if any(judged.startswith(f"{each.table} ") for judged in asked)]
    decided = [str(verdict.decision) for verdict in about if verdict.decision and verdict.judged in asked]
    if any(verdict.run_id.startswith(ROLL_BACK) for verdict in about):  # what stood at the release was recorded again
        decided += [str(each) for each in read_decisions(settings) if each.choice == ROLL_BACK][:1]
    return decided


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


def question(verdicts: Sequence[Verdict], release: int | None, airflow_url: str, unused: Sequence[Decision] = ()) -> str:
    """The text of the question, as Markdown: what failed, where to read about it, what each choice does. It names no row: viewers see it.

    `unused` are answers to the question before that could not count.
    """
    lines = []
    for each in unused:
        choice = _cell(each.choice.partition(" (")[0])
        lines.append(f"**Asked again.** {_cell(each.who)} answered {choice}, which did not count: {_cell(each.why, LONGEST_REASON)}\n")
    lines += ["| table | expectation | found | expected |", "|---|---|---|---|"]
    for verdict in verdicts:
        lines += [
            f"| {verdict.table} | {each.expectation} | {_cell(without_row(each.found or ''))} | {_cell(each.expected)} |"
            for each in verdict.critical or [Finding("no verdict")]
        ]
    for run_id in sorted({verdict.run_id for verdict in verdicts}):
        page = f"{airflow_url}/dags/{dag_of_run(run_id)}/runs/{quote(run_id)}"
        of_airflow = f"[{run_id}]({page}); its tab *Quality* shows the rows"  # a run id of Airflow's has two underscores
        lines += ["", f"Judged in run {of_airflow if '__' in run_id else f'`{run_id}`, by hand'}."]
    reports = {verdict.report: verdict.table for verdict in verdicts if verdict.report}
    links = [f"[{table}]({report_url(report, airflow_url)})" for report, table in reports.items()]
    lines += ["", f"Reports: {', '.join(links) or 'none'}."]
    lines += ["", f"[The evidence]({decisions_url(airflow_url)}): records, the rules most broken, and what each choice does, in numbers."]
    for decision in {verdict.decision for verdict in verdicts if verdict.decision}:
        lines += ["", f"{_cell(decision.who)} decided to wait at {decision.decided_at:%Y-%m-%d %H:%M} UTC: {_cell(decision.why)}"]
    seen = f"release {release}" if release else "no release: there is none yet"
    back = f"release {release}" if release else "what they were before the first batch"
    lines += [
        "",
        f"Readers see {seen}. The pipeline waits until you decide; the choice and your reason are kept in `control.decisions`.",
        "",
        f"- **{RELEASE_ANYWAY}**: these verdicts count as passed; a run of `medallion` starts at once and releases the rows as they are.",
        f"- **{ROLL_BACK}**: silver and gold return to {back}, and a run of `medallion` takes the later batches from bronze again. "
        "Repair the cause first, or the gate closes again.",
        f"- **{WAIT}**: nothing changes. Runs of `medallion` fail at once until the gate is judged again, or `{DECISION_DAG}` is triggered "
        "by hand and somebody decides otherwise.",
    ]
    return "\n".join(lines)


def _cell(text: object, longest: int = LONGEST_FOUND) -> str:
    """A value for a cell of a table: one line, as code, cut."""
    words = " ".join(str(text).split()).replace("|", "/").replace("`", "'") if text is not None else ""
    cut = words if len(words) <= longest else f"{words[:longest]}…"
    return f"`{cut}`" if cut else "\N{EN DASH}"
