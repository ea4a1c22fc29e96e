"""A home in which all is well, with something to say in every series; and the faults that alerts are for."""

import json
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from spark_jobs.lake import tables
from spark_jobs.runtime.identity import identify
from spark_jobs.runtime.job_counts import counted
from spark_jobs.runtime.settings import Settings
from spark_jobs.service.heartbeat import RUNNING, HeartbeatFile
from spark_jobs.service.services import INGESTION, LIVE, Service
from tests.support import quality_rows
from tests.support.quality_rows import Row, write

RUNS = 3
EVERY = tuple(table.name for layer in tables.LAYERS.values() for table in layer)
COSTS = {
    "batches": 4,
    "rows": 4000,
    "seconds": {"addBatch": 3.5, "walCommit": 0.5},
    "input_rate": 100.0,
    "processing_rate": 900.0,
    "batch_seconds": 1.0,
    "state_rows": 70,
    "state_bytes": 7000,
}


# What Airflow sends while all is well: a second of it.
AIRFLOW = "\n".join(
    [
        *("scheduler_heartbeat:1|c", "dag_processor_heartbeat:1|c", "triggerer_heartbeat:1|c", "dag_processing.import_errors:0|g"),
        "ti.finish,dag_id=medallion,task_id=silver,state=success:1|c",
        "dagrun.duration.success,dag_id=medallion,run_type=scheduled:1500.5|ms",
        "task.queued_duration,dag_id=medallion,task_id=silver,queue=default:250|ms",
        *("executor.open_slots:3|g", "executor.queued_tasks:0|g", "executor.running_tasks:1|g"),
    ]
)


def part(**facts: Any) -> dict[str, Any]:
    """The status of a query that runs."""
    return {"state": RUNNING, "batch": 7, "lag_records": 0, "progressed_at": time.time(), "costs": COSTS} | facts


def ingesting(**facts: Any) -> dict[str, Any]:
    pace = {"pace": "keeping up", "lag_seconds": 0.0, "arrival_rate": 100.0, "processing_rate": 900.0, "limit": 100_000}
    return part(**{"offsets": {"0": 700, "1": 300}} | pace | facts)


def following(**facts: Any) -> dict[str, Any]:
    return part(**{"watermark": "2026-03-01T00:10:00Z", "dropped_rows": 0} | facts)


def beat(settings: Settings, service: Service, parts: dict[str, dict[str, Any]], **news: Any) -> None:
    """The heartbeat of an application, which is this process."""
    HeartbeatFile(settings, service, service.command, parts, "run", 1).beat(state=RUNNING, topics=parts, **news)


def ingest(settings: Settings, seconds: float = 0.0) -> None:
    """The heartbeat of the ingestion, so many seconds later than at first."""
    offsets = {"0": 700 + int(90 * seconds), "1": 300 + int(10 * seconds)}
    costs = COSTS | {"batches": 4 + int(seconds), "rows": 4000 + int(100 * seconds), "seconds": {"addBatch": 3.5 + seconds / 2}}
    parts = {topic: ingesting() for topic in INGESTION.parts}
    beat(settings, INGESTION, parts | {"transactions": ingesting(offsets=offsets, costs=costs)})


def make(settings: Settings) -> None:
    """Runs of silver and gold with their verdicts, released; applications that run; jobs that have ended."""
    numbers = range(1, RUNS + 1)
    write(settings, tables.BATCHES, [quality_rows.batch(number, topic) for number in numbers for topic in quality_rows.TOPICS])
    write(settings, tables.QUALITY_RESULTS, [quality_rows.verdict(number, name) for number in numbers for name in EVERY])
    write(settings, tables.RELEASES, [quality_rows.release(number, number, name) for number in numbers for name in EVERY])
    write(settings, tables.BRONZE_TRANSACTIONS, [quality_rows.bronze(number, number) for number in numbers])
    write(settings, tables.TRANSACTIONS_LATE, [quality_rows.late(number, "12.500") for number in numbers])
    broken = [quality_rows.quarantined(2, "transactions", at, b"{}", ["type_known"]) for at in range(5)]
    write(settings, tables.TRANSACTIONS_QUARANTINE, broken)
    ingest(settings)
    beat(settings, LIVE, {"alerts": following()})
    run(settings, "silver", 0)


def run(settings: Settings, job: str, *codes: int) -> None:
    """A job that ends with these exit codes, one time after the other."""
    for code in codes:
        with counted(settings, job) as ending:
            ending.exit_code = code


def hold_back(settings: Settings) -> None:
    """A row of bronze came two hours ago, and no release holds it."""
    at = datetime.now(UTC) - timedelta(hours=2)
    write(settings, tables.BRONZE_TRANSACTIONS, [quality_rows.bronze(RUNS + 1, 99) | {"_ingested_at": at}])


def close_gate(settings: Settings) -> None:
    write(settings, tables.QUALITY_RESULTS, [quality_rows.verdict(RUNS + 1, "silver.transactions", "unique")])


def take_bad_rows(settings: Settings, number: int = RUNS + 1) -> None:
    """A run of silver takes 1,000 rows, of which 400 break a rule."""
    counts = {"input": 1000, "output": 590, "duplicates": 10, "quarantined": 400}
    write(settings, tables.BATCHES, [quality_rows.batch(number, "transactions") | counts])


def die(settings: Settings) -> None:
    """The application of the live queries is gone without a last word; before that, one of its queries failed and dropped rows."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as gone:
        process = identify(gone.pid)
        gone.kill()
    failing = following(dropped_rows=3, failures=4) | {"state": "failing", "error": "no space left", "next_try_at": time.time()}
    beat(settings, LIVE, {"alerts": failing}, process=process)


def fall_silent(settings: Settings) -> None:
    """The ingestion is far behind, and then it hangs."""
    behind = ingesting(pace="overloaded", lag_records=2_000_000, lag_seconds=900.0)
    beat(settings, INGESTION, dict.fromkeys(INGESTION.parts, behind))
    file = INGESTION.folder(settings) / f"{INGESTION.command}.heartbeat"
    facts: Row = json.loads(file.read_text())
    file.write_text(json.dumps(facts | {"beat_at": time.time() - 100}))


def damage(settings: Settings) -> None:
    """The newest commit of a table cannot be read."""
    log = tables.DECISIONS.path(settings) / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    (log / f"{0:020}.json").write_text("{ not a commit")
