"""Series of Airflow: out of what it sends by StatsD, with tags as InfluxDB has them (`name,tag=value:1|c`).

Airflow sends datagrams and waits for nothing: without an exporter they are lost, and no task knows.
"""

import logging
import re
import socket
import threading
from collections.abc import Iterator, Mapping

from include.metrics.series import Sample

log = logging.getLogger(__name__)

PARTS = ("scheduler", "dag_processor", "triggerer")  # of Airflow, which say by a heartbeat that they work
_LINE = re.compile(r"(?P<name>[^:,|]+)(?P<tags>(?:,[^:|]*)?):(?P<value>[-+]?[0-9.eE+-]+)\|(?P<kind>c|g|ms)(?:\|@(?P<rate>[0-9.]+))?")
_EXECUTOR = {"executor.open_slots": "open", "executor.queued_tasks": "queued", "executor.running_tasks": "running"}
_MOST = 5_000  # samples: names of DAGs and tasks are few, and whoever sends others must not fill the memory
_DATAGRAM = 65_536  # bytes


class Received:
    """What has come since the exporter started; may be asked while more comes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[tuple[str, tuple[str, ...]], float] = {}
        for part in PARTS:
            self._values["ledger_airflow_heartbeats_total", (part,)] = 0.0

    def read(self) -> Iterator[Sample]:
        """The samples of now."""
        with self._lock:
            values = list(self._values.items())
        yield from ((name, labels, value) for (name, labels), value in values)

    def take(self, datagram: str) -> None:
        """Count what a datagram says; lines that are none of StatsD's, or of no series here, are passed over."""
        for line in datagram.splitlines():
            if found := _LINE.fullmatch(line.strip()):
                tags = dict(tag.split("=", 1) for tag in found["tags"].split(",") if "=" in tag)
                try:
                    value = float(found["value"]) / float(found["rate"] or 1)
                except (ValueError, ZeroDivisionError):
                    continue
                with self._lock:
                    self._take(found["name"], tags, value)

    def _take(self, name: str, tags: Mapping[str, str], value: float) -> None:
        dag = tags.get("dag_id", "")
        if name.endswith("_heartbeat") and name.removesuffix("_heartbeat") in PARTS:
            self._add("heartbeats_total", value, name.removesuffix("_heartbeat"))
        elif name == "ti.finish":
            self._add("tasks_total", value, dag, tags.get("task_id", ""), tags.get("state", ""))
        elif name in ("dagrun.duration.success", "dagrun.duration.failed"):
            self._add("runs_total", 1, dag, name.rpartition(".")[2])
            self._add("run_seconds_total", value / 1000, dag, name.rpartition(".")[2])
        elif name == "task.queued_duration":
            self._add("queued_seconds_total", value / 1000, dag, tags.get("task_id", ""))
        elif name in _EXECUTOR:
            self._values["ledger_airflow_executor_tasks", (_EXECUTOR[name],)] = value
        elif name == "dag_processing.import_errors":
            self._values["ledger_airflow_import_errors", ()] = value

    def _add(self, name: str, value: float, *labels: str) -> None:
        key = f"ledger_airflow_{name}", labels
        if key in self._values or len(self._values) < _MOST:
            self._values[key] = self._values.get(key, 0.0) + value


def listen(host: str, port: int) -> Received:
    """Receive datagrams for as long as this process lives; raises OSError where the port is taken."""
    received, here = Received(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    here.bind((host, port))

    def receive() -> None:
        while True:
            try:
                received.take(here.recv(_DATAGRAM).decode(errors="replace"))
            except Exception as error:
                log.warning("a datagram of Airflow is passed over: %s", error)
                log.debug("", exc_info=True)

    threading.Thread(target=receive, name="statsd", daemon=True).start()
    return received
