"""`python -m tests.benchmarks.runs_on_record [--runs N]`: what the steps of a run ask of control tables, and the page Quality, behind so
many runs on record.

Made rows: a run of silver and gold every 45 seconds, its verdicts and its release; 13,000 are a week of them. Reports of 2,000 runs.
Printed: the seconds of each question, the median of three times.
"""

import argparse
import logging
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from fastapi.testclient import TestClient

from expectations.gate import judge
from include.quality_page.access import may_read
from include.quality_page.app import app
from spark_jobs import control
from spark_jobs.control import scope, verdicts
from spark_jobs.control.verdicts import Verdict
from spark_jobs.lake.tables import BATCHES, BRONZE, CONTROL, GOLD, LAYERS, QUALITY_RESULTS, RELEASES, SILVER, ensure_tables
from spark_jobs.releases import releases, retention
from spark_jobs.runtime.settings import Settings, read_settings
from tests.benchmarks.history import environment
from tests.support.quality_site import as_operator

EVERY = timedelta(seconds=45)
TIMES, REPORTS = 3, 2_000
READ = '{"silver.transactions": 1, "silver.customers": 1, "silver.accounts": 1}'


def main() -> None:
    """Make the rows, and time the questions."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.runs_on_record")
    parser.add_argument("--runs", type=int, default=13_000)
    count, now = parser.parse_args().runs, datetime.now(UTC)
    logging.disable(logging.INFO)
    with tempfile.TemporaryDirectory() as folder:
        settings = read_settings(environment(Path(folder)))
        make_rows(settings, count, now)
        make_reports(settings, min(count, REPORTS))
        questions: dict[str, Callable[[], Any]] = {
            "the last batch of a job": lambda: control.last_batch(settings, "silver", "silver.transactions"),
            "the versions that gold read": lambda: control.versions_read_by_gold(settings),
            "the newest verdicts": lambda: verdicts.newest_verdicts(settings),
            "what no gate has judged": lambda: scope.find_written(settings, "gold"),
            "the newest release": lambda: releases.latest_release(settings),
            "the releases that are offered": lambda: retention.offered(settings, now),
            "the page Quality": lambda: page(folder),
            f"the report of a table (behind those of {min(count, REPORTS):,} runs)": lambda: report(settings),
        }
        print(f"behind {count:,} runs on record")
        for words, question in questions.items():
            print(f"{words:55} {statistics.median(seconds_of(question) for _ in range(TIMES)):8.3f} s", flush=True)


def make_rows(settings: Settings, count: int, now: datetime) -> None:
    """Runs, verdicts and releases, up to `now`; no other rows."""
    ensure_tables(settings, (*BRONZE, *SILVER, *GOLD, *CONTROL))
    judged = [(layer, table) for layer, tables in LAYERS.items() for table in tables]
    runs, results, released = list[dict[str, Any]](), list[dict[str, Any]](), list[dict[str, Any]]()
    for number in range(1, count + 1):
        at, run_id = now - (count - number) * EVERY, f"run-{number}"
        common = {"run_id": run_id, "first_batch": number, "last_batch": number, "output": 1, "finished_at": at}
        runs.append(common | {"job": "silver", "table": "silver.transactions", "rules_version": "made"})
        runs += [common | {"job": "gold", "table": table.name, "_read_versions": READ} for table in GOLD]
        results += [Verdict(table.name, layer, run_id, 0, True, 1, (), None, number, number, at).row() for layer, table in judged]
        released += [{"release_id": number, "table": table.name, "version": 0, "rows": 0, "released_at": at} for _, table in judged]
    for kept, rows in ((BATCHES, runs), (QUALITY_RESULTS, results), (RELEASES, released)):
        control.append(settings, kept, rows)


def make_reports(settings: Settings, runs: int) -> None:
    """A small page and result for each gold table and run, where Great Expectations puts them."""
    for root, content in (("data_docs/validations/{}.html", "<html></html>"), ("gx/validations/{}.json", "{}")):
        for number in range(runs):
            for table in GOLD:
                place = f"{table.name.replace('.', '/')}/run-{number}/20260101T{number:06}.000000Z/profiles-{table.name}"
                file = settings.quality / root.format(place)
                file.parent.mkdir(parents=True)
                file.write_text(content)


def report(settings: Settings) -> None:
    """Judge a table with nothing to measure, and write its report."""
    [judgement] = judge(
        settings.quality, "gold", {"gold.own": lambda _: pa.table({"found": [0]})}, "run", datetime.now(UTC), keys={"gold.own": ("day",)}
    )
    assert judgement.passed


def page(home: str) -> None:
    """Open the first page of Quality, as an operator."""
    app.dependency_overrides[may_read] = as_operator
    with patch.dict(os.environ, environment(Path(home)), clear=True):
        assert TestClient(app).get("/").status_code == 200


def seconds_of(question: Callable[[], Any]) -> float:
    """How long a question takes."""
    begun = time.perf_counter()
    question()
    return time.perf_counter() - begun


if __name__ == "__main__":
    main()
