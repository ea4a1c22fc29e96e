"""The exporter: at each scrape every part is read on its own, and one that cannot be read takes no other with it."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from include.metrics import applications, host, warehouse
from include.metrics.airflow import Received
from include.metrics.series import (
    AIRFLOW,
    APPLICATIONS,
    BATCHES,
    BY_NAME,
    COUNTER,
    GATES,
    HOST,
    JOBS,
    QUARANTINE,
    RELEASES,
    SERIES,
    TABLES,
    Sample,
)
from include.metrics.warehouse import Cache
from spark_jobs.runtime.errors import LedgerError, first_line
from spark_jobs.runtime.settings import Settings

log = logging.getLogger(__name__)

Part = Callable[[], Iterable[Sample]]


class Exporter(Collector):
    """The series of one home. Scrapes that come at a time are answered one after the other."""

    def __init__(self, settings: Settings, airflow: Received | None = None) -> None:
        cache = Cache(settings)
        self.parts: dict[str, Part] = {
            APPLICATIONS: lambda: applications.read(settings),
            JOBS: lambda: host.read_jobs(settings),
            TABLES: lambda: warehouse.read_tables(cache),
            BATCHES: lambda: warehouse.read_batches(cache),
            RELEASES: lambda: warehouse.read_releases(cache),
            GATES: lambda: warehouse.read_gates(cache),
            QUARANTINE: lambda: warehouse.read_quarantine(cache),
            HOST: lambda: host.read_host(settings),
            AIRFLOW: lambda: airflow.read() if airflow else (),
        }
        self._one_at_a_time = threading.Lock()
        self._failing: set[str] = set()

    def collect(self) -> Iterator[Metric]:
        """Every series of which there is a sample."""
        with self._one_at_a_time:
            samples = list(self._read())
        families = {series.name: _family(series.name) for series in SERIES}
        for name, labels, value in samples:
            families[name].add_metric(labels, value)
        yield from (family for family in families.values() if family.samples)

    def describe(self) -> Iterable[Metric]:
        """Nothing: registering the exporter must not read anything yet."""
        return ()

    def _read(self) -> Iterator[Sample]:
        for name, read in self.parts.items():
            began = time.monotonic()
            try:
                yield from _checked(name, list(read()))
                is_wrong = False
                self._failing.discard(name)
            except Exception as error:
                is_wrong = True
                if name not in self._failing:  # once, and again after it could be read
                    log.warning("the metrics of %s cannot be read: %s: %s", name, type(error).__name__, first_line(error))
                    log.debug("", exc_info=True)
                self._failing.add(name)
            yield "ledger_scrape_errors", (name,), float(is_wrong)
            yield "ledger_scrape_seconds", (name,), time.monotonic() - began


def registry(settings: Settings, airflow: Received | None = None) -> CollectorRegistry:
    """What Prometheus' client serves: the series of a home and of its Airflow, and nothing of the exporter's own process."""
    made = CollectorRegistry(auto_describe=False)
    made.register(Exporter(settings, airflow))
    return made


def _checked(part: str, samples: list[Sample]) -> list[Sample]:
    """The samples; raises LedgerError for one that is not declared for the part, or comes twice: Prometheus would refuse all."""
    seen = set()
    for name, labels, _ in samples:
        series = BY_NAME.get(name)
        if series is None or series.part != part or len(labels) != len(series.labels) or (name, labels) in seen:
            raise LedgerError(f"found {name} with {labels} among the samples of {part}, expected it once, as series.py declares it")
        seen.add((name, labels))
    return samples


def _family(name: str) -> CounterMetricFamily | GaugeMetricFamily:
    series = BY_NAME[name]
    if series.kind == COUNTER:
        return CounterMetricFamily(name, series.text, labels=series.labels)
    return GaugeMetricFamily(name, series.text, labels=series.labels)
