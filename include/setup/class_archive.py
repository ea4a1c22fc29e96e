"""`python -m include.setup.class_archive FILE`: archive the classes that a job loads, so that later JVMs start faster.

Runs silver over a few generated rows, in a home of its own that is gone afterwards. No broker is needed.
"""

import os
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
from deltalake import WriterProperties, write_deltalake

from include.producer import Disturbances, generated_sources, plan_messages
from spark_jobs.lake.tables import BRONZE, ensure_tables
from spark_jobs.runtime.settings import ROOT, Settings, read_settings

ROWS = 500
_CORES_SHARE = WriterProperties(max_row_group_size=200_000)  # as they share the files of ingestion
DISTURBANCES = Disturbances(duplicates=0.05, malformed=0.05, late=0.0, seed=0)


def main() -> int:
    """Make the archive at the path that the first argument names; returns the exit code of the job that it ran."""
    archive = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as home:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("LEDGER_")} | {"LEDGER_HOME": home}
        fill_bronze(read_settings(environment), ROWS)
        command = [sys.executable, "-m", "spark_jobs.run", "silver"]
        environment["SPARK_SUBMIT_OPTS"] = f'-XX:ArchiveClassesAtExit="{archive}"'
        done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        print(done.stderr, file=sys.stderr)
    if archive.exists():
        archive.chmod(0o644)  # no data: the image is made by one user and used by another
    return done.returncode


def fill_bronze(settings: Settings, transactions: int) -> int:
    """Fill the bronze tables with generated transactions, their customers and accounts, as one batch each; returns the rows."""
    ensure_tables(settings, BRONZE)
    total = 0
    for table in BRONZE:
        topic, now = table.topic, datetime.now(UTC)
        common = {"_topic": topic, "_partition": 0, "_timestamp": now, "_batch": 1, "_ingested_at": now, "_ingested_on": now.date()}
        messages = plan_messages(generated_sources(transactions, seed=0, only=(topic,)), DISTURBANCES)
        rows = [common | {"key": message.key, "value": message.value, "_offset": offset} for offset, message in enumerate(messages)]
        arrow = pa.Table.from_pylist(rows, schema=pa.schema(table.delta_schema().to_arrow()))
        write_deltalake(str(table.path(settings)), arrow, mode="append", writer_properties=_CORES_SHARE)
        total += len(rows)
    return total


if __name__ == "__main__":
    sys.exit(main())
