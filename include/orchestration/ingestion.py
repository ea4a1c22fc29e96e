"""Which applications ingest which topics."""

from include.orchestration.services import INGESTION
from spark_jobs.runtime.settings import read_settings


def applications() -> dict[str, tuple[str, ...]]:
    """The topics of each application, by the id of its task: one for all of them, or by LEDGER_BRONZE_APPLICATIONS one for each."""
    if read_settings().bronze_applications == "one":
        return {"ingest": INGESTION.parts}
    return {f"ingest_{topic}": (topic,) for topic in INGESTION.parts}
