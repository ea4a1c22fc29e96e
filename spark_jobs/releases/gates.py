"""The job behind `run gate LAYER`: judges what a layer's job wrote, records the verdicts, raises when the gate is closed.

Starts no JVM: Delta is read by delta-rs, and Great Expectations judges what SQL measured. Where nothing new was written, the gate
says `skipped`, and judges only expectations that also apply without new rows (freshness).
"""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from expectations.context import index_page
from expectations.gate import Failure, Judgement, judge, refusal
from expectations.profile import measure_table
from expectations.suites import SuiteError, read_suite
from spark_jobs import control
from spark_jobs.control import backfills
from spark_jobs.control.judged_rows import Written, open_query
from spark_jobs.control.scope import find_written
from spark_jobs.control.verdicts import Finding, Verdict, append_under_lease, closed_verdicts, newest_verdicts, next_time
from spark_jobs.lake import leases
from spark_jobs.lake.tables import BY_NAME, FOLLOWERS, LAYERS, QUALITY_RESULTS, Table
from spark_jobs.lake.versions import hold_same_rows
from spark_jobs.releases import rollback
from spark_jobs.runtime.atomic_files import write_whole
from spark_jobs.runtime.errors import GateClosed, LedgerError
from spark_jobs.runtime.limited import NoAnswer, limited
from spark_jobs.runtime.masking import mask_error
from spark_jobs.runtime.settings import Settings

log = logging.getLogger(__name__)


def run(
    settings: Settings,
    layer: str,
    run_id: str,
    verdict_file: Path | None = None,
    now: datetime | None = None,
    limit_seconds: float | None = None,
    *,
    has_lease: bool = False,
) -> None:
    """Judge what the layer's job wrote since the last judgement that passed; what was not written since is not judged again.

    Writes Data Docs under `settings.quality`, one row a table to control.quality_results, and the verdict as JSON for callers.
    The caller may hold the layer's leases (`has_lease`).
    With a limit, tables are judged in a process of its own; no judgement within that time closes the gate.
    Raises GateClosed when a critical expectation failed or could not be judged; LedgerError when there is nothing that could be
    judged, or a roll-back was decided meanwhile.
    """
    # Bronze never stops to be written, but the version that holds the batches in question does not change.
    held = nullcontext() if has_lease or layer == "bronze" else rollback.hold(settings, LAYERS[layer], owner=f"gate {layer}")
    with nullcontext() if limit_seconds is None else limited(settings, judge_written) as call:
        with held:
            generation = control.generation(settings)
            if layer != "bronze":
                backfills.refuse_halfway(settings)
            to_judge, unchanged = find_written(settings, layer)
        now = next_time(settings, now or datetime.now(UTC))
        versions = {written.table.name: written.version for written in to_judge}
        if layer == "gold":  # against silver as gold read it
            versions |= control.versions_read_by_gold(settings)
        overdue = _find_overdue(settings, unchanged, now)
        judged = [written for written in (*to_judge, *overdue) if written.last_batch > 0]
        judging = partial(call, limit_seconds) if call else judge_written
        judgements = _judge(settings, layer, judged, overdue, versions, run_id, now, judging)
    verdicts = [_verdict(layer, run_id, now, written, _find(judgements, written)) for written in (*to_judge, *overdue)]
    unchanged = [verdict for verdict in unchanged if verdict.table not in {written.table.name for written in overdue}]
    if verdicts:
        with leases.hold(settings, [QUALITY_RESULTS], owner=f"gate {layer}"):
            if control.generation(settings) != generation:
                raise LedgerError(f"gate {layer}: a roll-back came in between and took away what was judged: run the gate again")
            append_under_lease(settings, verdicts)
    for line in (*map(_line, verdicts), *map(_unchanged_line, unchanged)):
        log.info("%s", line)
    for failure in _failures(judgements):
        log.warning("%s: %s", failure, failure.description)
    answer = _answer(settings, layer, verdicts, unchanged, is_new=bool(judgements) and len(judged) > len(overdue))
    if verdict_file:
        write_whole(verdict_file, json.dumps(answer, indent=2) + "\n")
    log.info("gate %s: %s; report: %s", layer, answer["verdict"], answer["report"])
    if answer["verdict"] == "closed":
        raise GateClosed(_closed_message(layer, _failures(judgements), answer["report"]))


def is_overdue(settings: Settings, now: datetime) -> bool:
    """Whether bronze had nothing new for longer than the freshness limit, and no gate has said so within that time."""
    unchanged = [verdict for verdict in newest_verdicts(settings).values() if verdict.layer == "bronze" and verdict.passed]
    limit = timedelta(seconds=settings.freshness_seconds)
    return bool(_find_overdue(settings, [verdict for verdict in unchanged if now - verdict.judged_at >= limit], now))


def unjudged_layers(settings: Settings) -> list[str]:
    """The layers that hold batches after those that their gates judged last. A layer that no gate ever judged is none of them."""
    newest = newest_verdicts(settings)

    def is_behind(table: Table) -> bool:
        job, name = ("gold", table.name) if table.layer == "gold" else ("silver", f"silver.{table.topic}")
        return table.name in newest and newest[table.name].last_batch < control.last_batch(settings, job, name)

    return [layer for layer, tables in LAYERS.items() if any(map(is_behind, tables))]


def is_ahead_of_gold(settings: Settings, topic: str) -> bool:
    """Whether the silver table of a topic holds rows that gold has not taken."""
    silver = BY_NAME[f"silver.{topic}"]
    application = control.following(settings, silver)
    followed = [table.open(settings).transaction_version(application) for table in FOLLOWERS[silver]]
    taken = min((version for version in followed if version is not None), default=0)
    return not hold_same_rows(settings, silver, taken, silver.open(settings).version())


def refuse_if_closed(settings: Settings, *layers: str) -> None:
    """Raise GateClosed when the newest verdict of a table of these layers is a closed one; no verdict is no objection."""
    if closed := closed_verdicts(settings, *layers):
        raise GateClosed(closed_line(closed))


def closed_line(closed: Sequence[Verdict]) -> str:
    """What closed gates wait for, in one line: what failed, whether an operator decided to wait, and the ways out."""
    names = "; ".join(f"{verdict.table} ({', '.join(map(str, verdict.findings))})" for verdict in closed)
    gates = " and ".join(sorted({f"gate {verdict.layer}" for verdict in closed}))
    waiting = next((verdict.decision for verdict in closed if verdict.decision), None)
    waited = f"{waiting.who} decided to wait at {waiting.decided_at:%Y-%m-%dT%H:%MZ} ({waiting.why}); " if waiting else ""
    return (
        f"{gates} closed on record: found {names}, expected a passed verdict: {waited}"
        "decide in Airflow by the DAG quality_decision, or with python -m spark_jobs.run decide; "
        "or mend the cause (run redrive takes rows back from quarantine) and judge again: "
        f"clear the gate's task, or python -m spark_jobs.run gate {closed[0].layer}; report: {closed[0].report}"
    )


def _find_overdue(settings: Settings, unchanged: Sequence[Verdict], now: datetime) -> list[Written]:
    """Tables to which nothing new was written, and for which an expectation that holds without new rows fails now."""
    overdue = []
    for verdict in unchanged:
        table = BY_NAME[verdict.table]
        try:
            suite = read_suite(table.name).without_new_rows()
        except SuiteError:
            continue  # closes the gate as soon as there are rows to judge
        written = Written(table, verdict.version, verdict.first_batch, verdict.last_batch)
        if not suite.expectations or written.last_batch == 0:
            continue
        profile = measure_table(suite, open_query(settings, written, {}, now))
        if profile.errors or any(profile.values.values()):
            overdue.append(written)
    return overdue


def _judge(
    settings: Settings,
    layer: str,
    judged: Sequence[Written],
    overdue: Sequence[Written],
    versions: Mapping[str, int],
    run_id: str,
    now: datetime,
    judging: Callable[..., list[Judgement]],
) -> list[Judgement]:
    if not judged:
        return []
    arguments = (settings, layer, judged, [written.table.name for written in overdue], versions, run_id, now)
    try:
        return judging(*arguments)
    except NoAnswer as error:  # in doubt the gate is closed, and says why
        expected = "a judgement within LEDGER_GATE_SECONDS"
        return [refusal(written.table.name, "judgement", str(error), expected) for written in judged]


def judge_written(
    settings: Settings,
    layer: str,
    judged: Sequence[Written],
    unchanged: Sequence[str],
    versions: Mapping[str, int],
    run_id: str,
    now: datetime,
) -> list[Judgement]:
    """Judge rows of some tables of a layer; of `unchanged`, without new rows, only expectations that apply to those too."""
    queries = {written.table.name: open_query(settings, written, versions, now) for written in judged}
    keys = {written.table.name: written.table.keys for written in judged if written.table.query}
    return judge(settings.quality, layer, queries, run_id, now, unchanged=unchanged, keys=keys)


def _find(judgements: Sequence[Judgement], written: Written) -> Judgement | None:
    return next((judgement for judgement in judgements if judgement.table == written.table.name), None)


def _verdict(layer: str, run_id: str, now: datetime, written: Written, judgement: Judgement | None) -> Verdict:
    """The verdict on one table. A table whose source never had a batch is empty: it passes, with nothing evaluated."""
    failures = judgement.failures if judgement else ()
    return Verdict(
        table=written.table.name,
        layer=layer,
        run_id=run_id,
        version=written.version,
        success=judgement.passed if judgement else written.last_batch == 0,
        evaluated=judgement.evaluated if judgement else 0,
        findings=tuple(Finding(each.expectation, each.severity, mask_error(each.found), each.expected) for each in failures),
        report=judgement.report if judgement else None,
        first_batch=written.first_batch if written.last_batch else 0,
        last_batch=written.last_batch,
        judged_at=now,
    )


def _failures(judgements: Sequence[Judgement]) -> list[Failure]:
    return [failure for judgement in judgements for failure in judgement.failures]


def _line(verdict: Verdict) -> str:
    """One line of the log about a table that was judged."""
    if verdict.last_batch == 0:
        return f"{verdict.table} version {verdict.version}: no batch yet, nothing to judge"
    failed = f", failed: {', '.join(map(str, verdict.findings))}" if verdict.findings else ""
    batches = f"batches {verdict.first_batch} to {verdict.last_batch}"
    return f"{verdict.table} version {verdict.version}, {batches}: {verdict.says}, {verdict.evaluated} expectations{failed}"


def _unchanged_line(verdict: Verdict) -> str:
    if verdict.last_batch == 0:
        return _line(verdict)
    return f"{verdict.table} version {verdict.version}: nothing new, {verdict.says} up to batch {verdict.last_batch} still holds"


def _answer(settings: Settings, layer: str, verdicts: Sequence[Verdict], unchanged: Sequence[Verdict], *, is_new: bool) -> dict[str, Any]:
    """What the gate says of its layer, for callers in other processes."""
    is_closed = not all(verdict.success for verdict in verdicts)
    reports = [verdict.report for verdict in sorted(verdicts, key=lambda each: each.success) if verdict.report]  # of closed tables first
    found = [(verdict.table, finding) for verdict in verdicts for finding in verdict.findings]
    return {
        "verdict": "closed" if is_closed else "passed" if is_new else "skipped",
        "layer": layer,
        "failed": [
            {"table": table, "expectation": each.expectation, "found": each.found, "expected": each.expected}
            for table, each in found
            if each.is_critical
        ],
        "warnings": [f"{table} {each}: found {each.found}, expected {each.expected}" for table, each in found if not each.is_critical],
        "report": reports[0] if reports else index_page(settings.quality),
        "tables": {
            verdict.table: {
                "verdict": verdict.says if verdict.passed else "closed",
                "judged": verdict in verdicts,
                "version": verdict.version,
                "first_batch": verdict.first_batch,
                "last_batch": verdict.last_batch,
                "rows": control.count(BY_NAME[verdict.table].open(settings, version=verdict.version if verdict in verdicts else None)),
                "report": verdict.report,
            }
            for verdict in (*verdicts, *unchanged)
        },
    }


def _closed_message(layer: str, failures: Sequence[Failure], report: str | None) -> str:
    critical = [failure for failure in failures if failure.is_critical]
    found = "; ".join(f"{each.table} {each.expectation}: found {each.found}, expected {each.expected}" for each in critical)
    return f"gate {layer} is closed: {found}; report: {report}"
