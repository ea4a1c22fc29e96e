"""On request: the exporter of metrics, Debian's Prometheus and its alertmanager, all on loopback, with what they keep below the home."""

import os
import re
import shutil
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from string import Template

import httpx

from include.stack import s3
from include.stack.endpoints import HOST, claim_port, ports_of, stack_folder
from include.stack.processes import Running, find_part, start, wait_until
from spark_jobs.runtime.atomic_files import write_whole
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.settings import ROOT, Settings

EXPORTER, PROMETHEUS, ALERTMANAGER = "metrics-exporter", "prometheus", "alertmanager"
PARTS = (EXPORTER, PROMETHEUS, ALERTMANAGER)
PROGRAMS = {PROMETHEUS: "prometheus", ALERTMANAGER: "prometheus-alertmanager"}  # as Debian names them, and their packages
STATSD = "metrics-statsd"  # the port at which the exporter receives what Airflow sends
URLS = {EXPORTER: "METRICS_URL", PROMETHEUS: "PROMETHEUS_URL", ALERTMANAGER: "ALERTMANAGER_URL"}  # in `make status`
READY_SECONDS = 60
# What of Airflow's metrics the exporter has series for (include/metrics/airflow.py): the beginnings of names.
FROM_AIRFLOW = (
    *("scheduler_heartbeat", "dag_processor_heartbeat", "triggerer_heartbeat", "dag_processing.import_errors"),
    *("ti.finish", "dagrun.duration", "task.queued_duration", "executor."),
)
KEPT_DAYS, KEPT_SIZE = 15, "1GB"
_SETTINGS = ROOT / "include/prometheus"
_PATHS = {EXPORTER: "/metrics", PROMETHEUS: "/-/ready", ALERTMANAGER: "/-/ready"}


def check_programs() -> None:
    """Raises LedgerError, before anything is started, where Prometheus or its alertmanager is not installed."""
    if missing := [program for program in PROGRAMS.values() if shutil.which(program) is None]:
        raise LedgerError(f"found no {' and no '.join(missing)}, expected Debian's: run apt-get install {' '.join(missing)}")


def launch(settings: Settings) -> list[Running]:
    """Start what does not run, without waiting for it; returns what was started."""
    home = settings.home
    stopped = [part for part in PARTS if not find_part(home, part)]
    ports = {part: claim_port(home, part) if part in stopped else ports_of(home)[part] for part in PARTS}
    if EXPORTER in stopped:
        claim_port(home, STATSD)
    return [
        start(home, part, command, _environment(settings), log_file(home, part)) for part, command in _commands(settings, ports, stopped)
    ]


def wait(home: Path, started: list[Running]) -> None:
    """Return when all of them answer; raises LedgerError when one does not come up."""
    for part in started:
        wait_until(partial(_answers, f"{own_url(home, part.part)}{_PATHS[part.part]}"), [part], READY_SECONDS)


def own_url(home: Path, part: str) -> str | None:
    """Where a part of this home listens, or would listen after a start; None before the first one."""
    port = ports_of(home).get(part)
    return f"http://{HOST}:{port}" if port else None


def log_file(home: Path, part: str) -> Path:
    """What a part says."""
    return home / "stack/prometheus" / f"{part}.log"


def airflow_environment(home: Path) -> dict[str, str]:
    """How Airflow sends its metrics to the exporter of this home; nothing where none runs, or one of an older version."""
    port = ports_of(home).get(STATSD)
    if port is None or not find_part(home, EXPORTER):
        return {}
    options = {"STATSD_ON": "True", "STATSD_HOST": HOST, "STATSD_PORT": str(port), "STATSD_PREFIX": "", "LEGACY_NAMES_ON": "False"}
    options |= {"STATSD_INFLUXDB_ENABLED": "True", "METRICS_ALLOW_LIST": ",".join(f"^{re.escape(name)}" for name in FROM_AIRFLOW)}
    return {f"AIRFLOW__METRICS__{name}": text for name, text in options.items()}


def _commands(settings: Settings, ports: Mapping[str, int], parts: list[str]) -> list[tuple[str, list[str]]]:
    home = settings.home
    folder = stack_folder(home) / "prometheus"
    config = folder / "prometheus.yml"
    words = {part.partition("-")[2] or part: f"{HOST}:{port}" for part, port in ports.items()}
    text = Template((_SETTINGS / "prometheus.yml").read_text()).safe_substitute(
        words, rules=_SETTINGS / "rules.yml", run_folder=settings.run_folder
    )
    write_whole(config, text)
    commands = {
        EXPORTER: [
            *(sys.executable, "-m", "include.metrics", "--port", str(ports[EXPORTER])),
            *(["--statsd-port", str(statsd)] if (statsd := ports_of(home).get(STATSD)) else []),
        ],
        PROMETHEUS: [
            *(PROGRAMS[PROMETHEUS], f"--config.file={config}", f"--web.listen-address={HOST}:{ports[PROMETHEUS]}"),
            *(f"--storage.tsdb.path={folder / 'data'}", f"--storage.tsdb.retention.time={KEPT_DAYS}d"),
            *(f"--storage.tsdb.retention.size={KEPT_SIZE}", "--log.level=warn"),
        ],
        ALERTMANAGER: [
            *(PROGRAMS[ALERTMANAGER], f"--config.file={_SETTINGS / 'alertmanager.yml'}"),
            *(f"--web.listen-address={HOST}:{ports[ALERTMANAGER]}", "--cluster.listen-address="),  # alone: it listens to no others
            *(f"--storage.path={folder / 'alerts'}", "--log.level=warn"),
        ],
    }
    return [(part, commands[part]) for part in parts]


def _environment(settings: Settings) -> dict[str, str]:
    """What the exporter must know of the home; a secret only where its tables or leases are on a server."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TZ") if name in os.environ}
    return kept | {
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "LEDGER_HOME": str(settings.home),
        "LEDGER_WAREHOUSE": str(settings.warehouse),
        "LEDGER_CHECKPOINTS": str(settings.checkpoints),
        "LEDGER_HOSTS": "several" if settings.has_several_hosts else "one",
        **({"LEDGER_POSTGRES_URL": settings.postgres_url} if settings.postgres_url else {}),
        **s3.environment(settings.home, settings),
        "LEDGER_RELEASE_STALE_MINUTES": str(settings.release_stale_minutes),
    }


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=15, trust_env=False).is_success
    except httpx.HTTPError:
        return False
