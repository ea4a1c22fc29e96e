"""OpenLineage: each job says that it began, what it read and wrote, and how it ended, where the client of OpenLineage is configured.

Where to is said by the client's own variables: `OPENLINEAGE_URL`, or `OPENLINEAGE__TRANSPORT__TYPE=file` and others. Without one of them
nothing is loaded. An event that cannot be delivered is logged, and never fails a job.
"""

import argparse
import logging
import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from threading import Thread
from typing import Any

from spark_jobs.commands.arguments import job_name
from spark_jobs.lake import tables
from spark_jobs.lake.ddl import parse_columns
from spark_jobs.lake.tables import Table
from spark_jobs.runtime.errors import first_line
from spark_jobs.runtime.settings import Settings

log = logging.getLogger(__name__)

NAMESPACE = "ledger"
PRODUCER = "urn:ledger:pipeline"
PARENT = "OPENLINEAGE_PARENT_ID"  # namespace/job/run of who started the job, as Airflow's provider writes it
_LONGEST_SECONDS = 10.0  # that a job waits until an event is delivered
_PLACES = ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG", "OPENLINEAGE__TRANSPORT")  # without one the client writes events to its log
# What a job writes while it holds the leases, so that a new version is its own.
WRITES: Mapping[str, tuple[Table, ...]] = {
    **dict.fromkeys(("bronze", "import", "replay"), tables.BRONZE),
    "silver": tables.SILVER,
    "gold": tables.GOLD,
    **dict.fromkeys(("redrive", "backfill"), (*tables.SILVER, *tables.GOLD)),
    "live": tables.LIVE,
    "gate": (tables.QUALITY_RESULTS,),
    "release": (tables.RELEASES,),
    "audit": (tables.AUDITS,),
    "decide": (tables.DECISIONS,),
    "districts": (tables.DISTRICTS,),
}


def is_on() -> bool:
    """Whether somebody has said where events go."""
    return any(name.startswith(_PLACES) for name in os.environ) and os.environ.get("OPENLINEAGE_DISABLED", "").lower() != "true"


@contextmanager
def reported(settings: Settings, options: argparse.Namespace) -> Iterator[None]:
    """Send an event when the job of this context begins, and one when it ends or fails.

    The last one has the tables of WRITES whose version has risen, with version and columns, and what each of these is made from.
    """
    if not is_on():
        yield
        return
    run, before = str(uuid.uuid4()), _versions(settings, WRITES.get(options.name, ()))
    _send("START", settings, options, run)
    try:
        yield
    except BaseException as error:
        _send("FAIL", settings, options, run, before, first_line(error))
        raise
    _send("COMPLETE", settings, options, run, before)


def sources(table: Table, layer: str | None) -> list[str]:
    """The names of what a table is made from: a topic as `kafka.NAME`. Of the verdicts of a gate, the tables of its layer."""
    if table == tables.QUALITY_RESULTS:
        return [each.name for each in tables.LAYERS[layer or "gold"]]
    if table == tables.RELEASES:
        return [each.name for each in (*tables.BRONZE, *tables.SILVER, *tables.GOLD)]
    if table in tables.LIVE:
        is_intake = table in (tables.LIVE_TRANSACTIONS, tables.LIVE_REFUSED)
        return [tables.BRONZE_TRANSACTIONS.name if is_intake else tables.LIVE_TRANSACTIONS.name]
    if table.layer == "gold":
        return [each.name for each in table.follows]
    return [f"{'kafka' if table.layer == 'bronze' else 'bronze'}.{table.topic}"] if table.topic else []


def _versions(settings: Settings, of: tuple[Table, ...]) -> dict[Table, int]:
    return {table: table.open(settings).version() for table in of if table.exists(settings)}


def _send(
    kind: str, settings: Settings, options: argparse.Namespace, run: str, before: Mapping[Table, int] | None = None, error: str = ""
) -> None:
    """Deliver one event, or log why not."""

    def send() -> None:
        try:
            _emit(kind, settings, options, run, before, error)
        except Exception as reason:
            log.warning("the lineage of %s is not reported (%s): %s: %s", options.name, kind, type(reason).__name__, first_line(reason))
            log.debug("", exc_info=True)

    sending = Thread(target=send, name="lineage", daemon=True)
    sending.start()
    sending.join(_LONGEST_SECONDS)
    if sending.is_alive():
        log.warning("the lineage of %s is not reported (%s): no answer within %.0f s", options.name, kind, _LONGEST_SECONDS)


def _emit(kind: str, settings: Settings, options: argparse.Namespace, run: str, before: Mapping[Table, int] | None, error: str) -> None:
    from openlineage.client import OpenLineageClient
    from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
    from openlineage.client.facet_v2 import dataset_version_dataset, error_message_run, parent_run, schema_dataset, tags_run

    written = {}
    if before is not None:
        now = _versions(settings, WRITES.get(options.name, ()))
        written = {table: number for table, number in now.items() if number != before.get(table)}
    read = sorted({name for table in written for name in sources(table, getattr(options, "layer", None))})

    def facets(table: Table, number: int) -> dict[str, Any]:
        fields = [schema_dataset.SchemaDatasetFacetFields(name=name, type=kind) for name, kind, _ in parse_columns(table.ddl)]
        version = dataset_version_dataset.DatasetVersionDatasetFacet(datasetVersion=str(number))
        return {"version": version, "schema": schema_dataset.SchemaDatasetFacet(fields=fields)}

    def source(name: str) -> Any:
        layer, _, topic = name.partition(".")
        if layer == "kafka":
            return InputDataset(namespace=f"kafka://{settings.kafka_bootstrap}", name=topic)
        table = next(each for each in tables.EVERY if each.name == name)
        present = _versions(settings, (table,))
        return InputDataset(namespace=_place(settings), name=name, facets=facets(table, present[table]) if present else {})

    outputs = [
        OutputDataset(namespace=_place(settings), name=table.name, facets=facets(table, number)) for table, number in written.items()
    ]
    of_run: dict[str, Any] = {"tags": tags_run.TagsRunFacet([tags_run.TagsRunFacetFields("run_id", options.run_id, "LEDGER")])}
    if error:
        of_run["errorMessage"] = error_message_run.ErrorMessageRunFacet(message=error, programmingLanguage="python")
    if parent := os.environ.get(PARENT):
        namespace, job, number = parent.split("/", 2)
        of_run["parent"] = parent_run.ParentRunFacet(parent_run.Run(runId=number), parent_run.Job(namespace, job))
    OpenLineageClient().emit(
        RunEvent(
            eventType=RunState[kind],
            eventTime=datetime.now(UTC).isoformat(),
            run=Run(runId=run, facets=of_run),
            job=Job(namespace=NAMESPACE, name=job_name(options)),
            inputs=[source(name) for name in read],
            outputs=outputs,
            producer=PRODUCER,
        )
    )


def _place(settings: Settings) -> str:
    return f"file://{settings.warehouse}"
