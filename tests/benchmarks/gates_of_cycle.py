"""The gates of a cycle (cycle.py), behind a history that they have passed."""

from spark_jobs import control
from spark_jobs.control.verdicts import Verdict
from spark_jobs.lake.tables import LAYERS, QUALITY_RESULTS
from spark_jobs.releases import gates
from spark_jobs.runtime.settings import Settings
from tests.benchmarks.gold_history import END


def run_gates(settings: Settings, run_id: str) -> None:
    """What `run gate` does for each layer, in this process. Raises GateClosed."""
    for layer in LAYERS:
        gates.run(settings, layer, run_id)


def pass_history(settings: Settings) -> None:
    """Record that every table passed as it is, so that the gates of a cycle judge what is new."""
    passed = [
        Verdict(
            table=table.name,
            layer=layer,
            run_id="history",
            version=table.open(settings).version(),
            success=True,
            evaluated=1,
            findings=(),
            report=None,
            first_batch=1,
            last_batch=control.silver_batch(settings, table.topic),
            judged_at=END,
        )
        for layer, tables in LAYERS.items()
        for table in tables
    ]
    control.append(settings, QUALITY_RESULTS, [verdict.row() for verdict in passed])
