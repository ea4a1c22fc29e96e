"""What Airflow sends by its own StatsD client becomes series; what is none of its lines is passed over."""

import socket
from typing import Any

import pytest
from airflow._shared.observability.metrics.statsd_logger import get_statsd_logger
from statsd import StatsClient  # type: ignore[import-untyped]

from include.metrics.airflow import Received, listen
from include.stack import prometheus
from spark_jobs.runtime.settings import Settings, read_settings
from tests.support.ledger import await_that

HOST = "127.0.0.1"


@pytest.fixture
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return read_settings({"LEDGER_HOME": str(tmp_path_factory.mktemp("home"))})


def value(received: Received, name: str, *labels: str) -> float | None:
    return {(sample[0], sample[1]): sample[2] for sample in received.read()}.get((f"ledger_airflow_{name}", labels))


def test_what_airflow_sends_is_counted(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind((HOST, 0))
        port = probe.getsockname()[1]
    received = listen(HOST, port)
    monkeypatch.setattr(prometheus, "find_part", lambda *_: object())
    monkeypatch.setattr(prometheus, "ports_of", lambda _: {prometheus.STATSD: port})
    wanted = prometheus.airflow_environment(settings.home)
    allowed = wanted["AIRFLOW__METRICS__METRICS_ALLOW_LIST"]
    told: dict[str, Any] = {
        "influxdb_tags_enabled": True,
        "statsd_influxdb_enabled": True,
        "metrics_allow_list": allowed,
    }  # as Airflow reads its settings
    sending = get_statsd_logger(stats_class=StatsClient, host=HOST, port=port, **told)
    task = {"dag_id": "medallion", "task_id": "silver"}
    sending.incr("ti.finish", tags=task | {"state": "success"})
    sending.incr("ti.finish", tags=task | {"state": "success"})
    sending.timing("dagrun.duration.failed", 2500, tags={"dag_id": "medallion", "run_type": "manual"})
    sending.timing("task.queued_duration", 250, tags=task)
    sending.gauge("executor.queued_tasks", 4)
    sending.gauge("pool.open_slots", 7, tags={"pool_name": "default_pool"})
    sending.gauge("dag_processing.import_errors", 2)
    sending.incr("scheduler_heartbeat")
    await_that(lambda: value(received, "heartbeats_total", "scheduler") == 1)
    assert value(received, "tasks_total", "medallion", "silver", "success") == 2
    assert value(received, "runs_total", "medallion", "failed") == 1
    assert value(received, "run_seconds_total", "medallion", "failed") == 2.5
    assert value(received, "queued_seconds_total", "medallion", "silver") == 0.25
    assert value(received, "executor_tasks", "queued") == 4
    assert value(received, "import_errors") == 2
    assert value(received, "heartbeats_total", "triggerer") == 0  # is there before the first: one that never comes is seen, too


def test_what_is_no_line_of_its_own_is_passed_over() -> None:
    received = Received()
    before = list(received.read())
    for line in ("", "x", ":1|c", "ti.finish:x|c", "ti.finish:1|c|@0", "other:1|c", "ti.finish,dag_id:1|h", "scheduler_heartbeat:1e|c"):
        received.take(line)
    assert list(received.read()) == before


def test_names_without_end_do_not_fill_the_memory() -> None:
    received = Received()
    for number in range(6_000):
        received.take(f"ti.finish,dag_id=d{number},task_id=t,state=success:1|c")
    received.take("ti.finish,dag_id=d1,task_id=t,state=success:1|c")
    assert len(list(received.read())) == 5_000
    assert value(received, "tasks_total", "d1", "t", "success") == 2
