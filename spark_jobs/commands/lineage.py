"""OpenLineage: each job says that it began, what it read and wrote, and how it ended, where the client of OpenLineage is configured.

Where to is said by the client's own variables: `OPENLINEAGE_URL`, or `OPENLINEAGE__TRANSPORT__TYPE=file` and others. Without one of them
nothing is loaded. An event that cannot be delivered is logged, and never fails a job.
"""

import argparse
import logging
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Event, Thread
from typing import Any

from spark_jobs import control
from spark_jobs.commands.arguments import job_name
from spark_jobs.control.scope import newest_batch
from spark_jobs.lake import tables
from spark_jobs.lake.ddl import parse_columns
from spark_jobs.lake.tables import Table
from spark_jobs.runtime import storage
from spark_jobs.runtime.errors import first_line
from spark_jobs.runtime.settings import Settings

log = logging.getLogger(__name__)

NAMESPACE = "ledger"
PRODUCER = "urn:ledger:pipeline"
OFFSETS = "ledger_offsets"  # the facet of an input with the coordinates of the records that were read
PARENT = "OPENLINEAGE_PARENT_ID"  # namespace/job/run of who started the job, as Airflow's provider writes it
LASTING = ("bronze", "live")  # run for months, so they also say meanwhile what they have written since
EVERY_SECONDS = 60.0
_LONGEST_SECONDS = 10.0  # that a job waits until an event is delivered
_PLACES = ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG", "OPENLINEAGE__TRANSPORT")  # without one the client writes events to its log
_READ = (
    "select _topic, _batch, _partition, min(_offset) as first_offset, max(_offset) as last_offset, count(*) as records "
    "from t where _batch > {after} and _batch <= {upto} group by _topic, _batch, _partition order by _topic, _batch, _partition"
)
# What a job writes while it holds the leases, so that a new version is its own.
WRITES: Mapping[str, tuple[Table, ...]] = {
    **dict.fromkeys(("bronze", "import", "replay"), tables.BRONZE),
    "silver": tables.SILVER,
    "gold": tables.GOLD,
    **dict.fromkeys(("redrive", "backfill", "forget"), (*tables.SILVER, *tables.GOLD)),
    "live": tables.LIVE,
    "gate": (tables.QUALITY_RESULTS,),
    "release": (tables.RELEASES,),
    "audit": (tables.AUDITS,),
    "decide": (tables.DECISIONS,),
    "districts": (tables.DISTRICTS,),
}


@dataclass(frozen=True)
class Reached:
    """How far a table is: its version, and of bronze its newest batch."""

    version: int
    batch: int = 0


def is_on() -> bool:
    """Whether somebody has said where events go."""
    is_named = any(name.startswith(_PLACES) and text for name, text in os.environ.items())
    return is_named and os.environ.get("OPENLINEAGE_DISABLED", "").lower() != "true"


@contextmanager
def reported(settings: Settings, options: argparse.Namespace) -> Iterator[None]:
    """Send an event when the job of this context begins, and one when it ends or fails; of LASTING also now and then meanwhile.

    All but the first have the tables of WRITES whose version has risen since the last event, with version and columns, and what each of
    these is made from; of bronze the coordinates of the records, batch by batch.
    """
    if not is_on():
        yield
        return
    run, ended = _Run(settings, options), Event()
    run.report("START")

    def report_now_and_then() -> None:
        while not ended.wait(EVERY_SECONDS):
            run.report("RUNNING")

    reporting = Thread(target=report_now_and_then, name="lineage", daemon=True)
    if options.name in LASTING:
        reporting.start()
    try:
        yield
    except BaseException as error:
        ended.set()
        run.report("FAIL", first_line(error))
        raise
    ended.set()
    run.report("COMPLETE")


def sources(table: Table, layer: str | None) -> list[str]:
    """The names of the tables that a table is made from. Of the verdicts of a gate, the tables of its layer; of bronze none."""
    if table == tables.QUALITY_RESULTS:
        return [each.name for each in tables.LAYERS[layer or "gold"]]
    if table == tables.RELEASES:
        return [each.name for each in (*tables.BRONZE, *tables.SILVER, *tables.GOLD)]
    if table in tables.LIVE:
        is_intake = table in (tables.LIVE_TRANSACTIONS, tables.LIVE_REFUSED)
        return [tables.BRONZE_TRANSACTIONS.name if is_intake else tables.LIVE_TRANSACTIONS.name]
    if table.layer == "gold":
        return [each.name for each in table.follows]
    return [f"bronze.{table.topic}"] if table.topic and table.layer == "silver" else []


class _Run:
    """The events of one run; each begins where the last one that was delivered ended."""

    def __init__(self, settings: Settings, options: argparse.Namespace) -> None:
        self._settings, self._options, self._id = settings, options, str(uuid.uuid4())
        self._writes = WRITES.get(options.name, ())
        self._layer: str | None = getattr(options, "layer", None)
        self._before: dict[Table, Reached] | None = None

    def report(self, kind: str, error: str = "") -> None:
        """Deliver one event, or log why not."""
        name = self._options.name

        def send() -> None:
            try:
                self._emit(kind, error)
            except Exception as reason:
                log.warning("the lineage of %s is not reported (%s): %s: %s", name, kind, type(reason).__name__, first_line(reason))
                log.debug("", exc_info=True)

        sending = Thread(target=send, name="lineage event", daemon=True)
        sending.start()
        sending.join(_LONGEST_SECONDS)
        if sending.is_alive():
            log.warning("the lineage of %s is not reported (%s): no answer within %.0f s", name, kind, _LONGEST_SECONDS)

    def _emit(self, kind: str, error: str) -> None:
        from openlineage.client import OpenLineageClient
        from openlineage.client.event_v2 import Job, Run, RunEvent, RunState

        now = _reached(self._settings, self._writes)
        if kind == "START":
            self._before = now
        before = now if self._before is None else self._before  # where nobody could say how far the tables were, nothing is claimed
        written = {table: new for table, new in now.items() if new != before.get(table)}
        if kind == "RUNNING" and not written:
            return
        read = sorted({name for table in written for name in sources(table, self._layer)})
        made_from = _reached(self._settings, [next(table for table in tables.EVERY if table.name == name) for name in read])
        records = [
            each
            for table, new in written.items()
            if table.layer == "bronze"
            for each in self._records(table, before[table].batch if table in before else -1, new.batch)
        ]
        OpenLineageClient().emit(
            RunEvent(
                eventType=RunState[kind],
                eventTime=datetime.now(UTC).isoformat(),
                run=Run(runId=self._id, facets=self._of_run(error)),
                job=Job(namespace=NAMESPACE, name=job_name(self._options)),
                inputs=[*records, *self._datasets(made_from)],
                outputs=self._datasets(written, are_outputs=True),
                producer=PRODUCER,
            )
        )
        self._before = now

    def _datasets(self, reached: Mapping[Table, Reached], are_outputs: bool = False) -> list[Any]:
        """Tables with their versions and columns."""
        from openlineage.client.event_v2 import InputDataset, OutputDataset
        from openlineage.client.facet_v2 import dataset_version_dataset, schema_dataset

        def facets(table: Table) -> dict[str, Any]:
            fields = [schema_dataset.SchemaDatasetFacetFields(name=name, type=kind) for name, kind, _ in parse_columns(table.ddl)]
            version = dataset_version_dataset.DatasetVersionDatasetFacet(datasetVersion=str(reached[table].version))
            return {"version": version, "schema": schema_dataset.SchemaDatasetFacet(fields=fields)}

        warehouse = self._settings.warehouse
        place = str(warehouse) if storage.is_remote(warehouse) else f"file://{warehouse}"
        made = OutputDataset if are_outputs else InputDataset
        return [made(namespace=place, name=table.name, facets=facets(table)) for table in reached]

    def _records(self, table: Table, after: int, upto: int) -> Iterator[Any]:
        """The topic, or the files, of the records that came to a bronze table with some batches, with their coordinates batch by batch."""
        from openlineage.client.event_v2 import InputDataset
        from openlineage.client.facet_v2 import input_statistics_input_dataset as statistics

        rows = control.query(table.open(self._settings), _READ.format(after=after, upto=upto)).to_pylist()
        for label in sorted({row["_topic"] for row in rows}):
            read = [{name.lstrip("_"): row[name] for name in row if name != "_topic"} for row in rows if row["_topic"] == label]
            facets: dict[str, Any] = {
                OFFSETS: {"_producer": PRODUCER, "_schemaURL": f"{PRODUCER}:{OFFSETS}", "topic": label, "batches": read},
                "inputStatistics": statistics.InputStatisticsInputDatasetFacet(rowCount=sum(row["records"] for row in read)),
            }
            kind, _, name = label.partition(":")
            place = ("file", name) if kind == "file" else (f"kafka://{self._settings.kafka_bootstrap}", table.topic)
            yield InputDataset(namespace=place[0], name=place[1], inputFacets=facets)

    def _of_run(self, error: str) -> dict[str, Any]:
        from openlineage.client.facet_v2 import error_message_run, parent_run, tags_run

        facets: dict[str, Any] = {"tags": tags_run.TagsRunFacet([tags_run.TagsRunFacetFields("run_id", self._options.run_id, "LEDGER")])}
        if error:
            facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(message=error, programmingLanguage="python")
        if parent := os.environ.get(PARENT):
            namespace, job, number = parent.split("/", 2)
            facets["parent"] = parent_run.ParentRunFacet(parent_run.Run(runId=number), parent_run.Job(namespace, job))
        return facets


def _reached(settings: Settings, of: Iterable[Table]) -> dict[Table, Reached]:
    """How far the tables are that exist."""
    present = [table for table in of if table.exists(settings)]
    batches = {table: newest_batch(settings, table) for table in present if table.layer == "bronze"}
    return {table: Reached(table.open(settings).version(), batches.get(table, 0)) for table in present}
