"""`run gate LAYER --suite FILE --since RELEASE`: what a changed suite would have decided about past runs whose batches are stored.

A suite (JSON) is judged run by run, each over the batches and at the versions that its gate judged. A rule set (YAML) is judged in
rule_rehearsal.py. Great Expectations works in a temporary folder: no table, no verdict and no report is written, no lease is taken.
"""

import json
import logging
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from deltalake.exceptions import DeltaError

from expectations.gate import Judgement, judge_profiles
from expectations.profile import Profile, Query, measure_table
from expectations.suites import Suite, SuiteError, read_suite_file
from spark_jobs import control
from spark_jobs.control.judged_rows import Written, open_query
from spark_jobs.control.verdicts import Verdict, all_verdicts
from spark_jobs.lake.tables import BY_NAME, LAYERS, Table
from spark_jobs.lake.topics import VERSIONS
from spark_jobs.releases.releases import read_releases
from spark_jobs.runtime import storage
from spark_jobs.runtime.errors import GateClosed, SettingsError
from spark_jobs.runtime.settings import Settings
from spark_jobs.runtime.text import print_masked

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PastRun:
    """A run that is rehearsed: the bronze batches that it took, and the versions of the tables that it left."""

    run_id: str
    first_batch: int
    last_batch: int
    at: datetime
    versions: Mapping[str, int]
    is_newest: bool

    def __str__(self) -> str:
        """Human-readable."""
        return f"run {self.run_id}, batches {self.first_batch} to {self.last_batch}"


def run(settings: Settings, layer: str, file: Path, since: int) -> None:
    """Rehearse a suite over what was stored after release `since` (0: over everything), and print the outcome.

    Raises SettingsError for a file or release that cannot be used, GateClosed when the gate would have closed.
    """
    try:
        suite = read_suite_file(file)
    except SuiteError as error:
        raise SettingsError(str(error)) from None
    table = next((table for table in LAYERS[layer] if table.name == suite.table), None)
    if table is None:
        names = ", ".join(table.name for table in LAYERS[layer])
        raise SettingsError(f"{file}: found suite {suite.table!r}, expected a table of {layer}: {names}")
    runs = find_runs(settings, table, since)
    judged = judge_runs(settings, table, suite, runs)
    print_masked(f"{table.name} by {file}, after release {since}: {len(runs)} runs, {len(suite.expectations)} expectations")
    conclude(judged, len(runs))


def conclude(judged: Sequence[tuple[PastRun, Judgement]], runs: int) -> None:
    """Print the outcome of each run; raises GateClosed when the gate would have closed for one of them."""
    for run, judgement in judged:
        print_masked(f"  {run}: would have {'passed' if judgement.passed else 'closed'}")
        for failure in judgement.failures:
            print_masked(f"    {failure.expectation} ({failure.severity}): found {failure.found}, expected {failure.expected}")
    closed = [(run, judgement) for run, judgement in judged if not judgement.passed]
    if closed:
        run, judgement = closed[0]
        names = ", ".join(failure.expectation for failure in judgement.failures if failure.is_critical)
        raise GateClosed(
            f"the gate would have closed for {len(closed)} of {runs} runs: found {names}, first in {run}, expected none: "
            "this was a rehearsal, nothing was written"
        )
    print_masked(f"the gate would have passed for {len(judged)} of {runs} runs; nothing was written")


def judge_runs(
    settings: Settings, table: Table, suite: Suite, runs: Sequence[PastRun], instead: Mapping[str, Path] | None = None
) -> list[tuple[PastRun, Judgement]]:
    """What a suite says of each run, in one run of Great Expectations. `instead` gives the folders of tables to read other than the stored.

    Runs whose table versions no longer exist are left out, and printed. Raises SettingsError when none is left of some.
    """
    names = {f"run {number}": run for number, run in enumerate(runs, 1)}
    measured: list[tuple[Suite, Profile]] = []
    queries: dict[str, Query] = {}
    for name, run in names.items():
        versions = {name: version for name, version in run.versions.items() if _is_readable(settings, name, version)}
        needed = run.versions.keys() | (set() if run.is_newest else {table.name})
        if gone := [name for name in sorted(needed) if name not in versions and _is_rewritten(name)]:
            print_masked(f"  {run}: cannot be judged: {', '.join(gone)} at that version is gone")
            continue
        written = Written(table, 0, run.first_batch, run.last_batch)
        queries[name] = open_query(settings, written, versions, run.at, instead)
        measured.append((replace(suite, table=name), replace(measure_table(suite, queries[name]), table=name)))
    if runs and not measured:
        raise SettingsError(
            f"none of {len(runs)} runs can be rehearsed: found no versions of {table.name} any more, expected a later release"
        )
    with tempfile.TemporaryDirectory(prefix="rehearsal-") as folder:
        judgements = judge_profiles(Path(folder), "rehearsal", measured, queries, "rehearsal", datetime.now(UTC))
    return [(names[judgement.table], judgement) for judgement in judgements]


def find_runs(settings: Settings, table: Table, since: int) -> list[PastRun]:
    """The runs that brought a table what was not in a release, in order; raises SettingsError when there is no such release."""
    source, is_gold = table.topic, table.layer == "gold"
    released = _released_batch(settings, since, f"bronze.{source}")
    job, recorded = ("gold", table.name) if is_gold else ("silver", f"silver.{source}")
    rows = control.batches(settings, job, recorded, after=released)
    verdicts = all_verdicts(settings)
    return [
        PastRun(
            row["run_id"],
            row["first_batch"],
            row["last_batch"],
            row["finished_at"],
            _versions(row, table, verdicts),
            is_newest=row is rows[-1],
        )
        for row in rows
    ]


def _released_batch(settings: Settings, since: int, bronze: str) -> int:
    if since == 0:
        return 0
    releases = {release.release_id: release for release in read_releases(settings)}
    if since not in releases:
        expected = (
            f"0 (everything) or one from {min(releases)} to {max(releases)}" if releases else "0 (everything): there is no release yet"
        )
        raise SettingsError(f"--since: found no release {since}, expected {expected}")
    return releases[since].last_batches.get(bronze, 0)


def _versions(run: Mapping[str, Any], table: Table, verdicts: Iterable[Verdict]) -> dict[str, int]:
    """The versions that the gate of a run judged. None for bronze, whose rows stay as they are: its later batches are left out."""
    if table.layer == "bronze":
        return {}
    versions = {
        verdict.table: verdict.version
        for verdict in verdicts
        if verdict.layer == table.layer and verdict.last_batch == run["last_batch"] and verdict.topic == table.topic
    }
    read_versions: dict[str, int] = json.loads(run["_read_versions"] or "{}")
    return versions | read_versions


def _is_rewritten(name: str) -> bool:
    """Whether a table's rows change: such a table can be read as it was by its old version only."""
    return BY_NAME[name].layer == "gold" or name in {topic.silver.name for topic in VERSIONS}


def _is_readable(settings: Settings, name: str, version: int) -> bool:
    """Whether a version can still be read: its commits are there, and so are its files."""
    try:
        files = BY_NAME[name].open(settings, version).file_uris()
    except DeltaError:
        return False
    return all(storage.place(unquote(file)).exists() for file in files)
