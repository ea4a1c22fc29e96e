"""Start the stack, stop it, say what runs."""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from include.stack import airflow, cluster, kafka, postgres, prometheus, s3
from include.stack.endpoints import (
    HOST,
    claim_port,
    home_of,
    only_one,
    port_is_free,
    ports_of,
    remove_endpoints,
    set_outside,
    stack_folder,
    write_endpoints,
)
from include.stack.processes import Running, find_all, find_part
from include.stack.shutdown import stop_parts
from spark_jobs.kafka.logins import check_login
from spark_jobs.kafka.topics import ensure_topics
from spark_jobs.runtime.errors import LedgerError, SettingsError
from spark_jobs.runtime.kafka_config import Broker
from spark_jobs.runtime.masking import mask_url
from spark_jobs.runtime.settings import Settings, read_endpoints, read_settings

Report = Callable[[str], None]
PARTS = (kafka.PART, postgres.PART, s3.PART, *cluster.PARTS, *airflow.COMMANDS, *prometheus.PARTS)


def up(
    environ: Mapping[str, str] = os.environ,
    report: Report = print,
    when_kafka_is_up: Callable[[Settings], None] | None = None,
    with_prometheus: bool = False,
    with_cluster: bool = False,
    with_s3: bool = False,
) -> Settings:
    """Start what does not run yet and return the settings as they now take effect.

    Parts that this call started are stopped again when it fails or is interrupted. `when_kafka_is_up` is called as soon as
    the broker has its topics, while Airflow still boots. `with_prometheus`: also the exporter of metrics and what watches it.
    `with_cluster`: also Spark's master and workers, where jobs of this home run from then on. `with_s3`: also an S3 server, where the home
    keeps its tables from then on, so that every later call starts it.
    Raises SettingsError for a bad setting, LedgerError with one line when a part does not come up, is not installed, a port is
    taken or an outside service is not reachable.
    """
    settings = read_settings(environ)
    home = settings.home
    with only_one(home, report):
        running = {part for part in PARTS if find_part(home, part)}
        try:
            check_airflow_port(settings)
            _check_parts(environ, home, with_prometheus, with_cluster, with_s3)
            outside_kafka = set_outside(environ, "LEDGER_KAFKA_BOOTSTRAP", kafka.own_bootstrap(home))
            outside_postgres = set_outside(environ, "LEDGER_POSTGRES_URL", postgres.own_url(home))
            storing = s3.launch(home) if with_s3 or s3.is_on(home) else None
            metadata_url = _start_services(settings, outside_kafka, outside_postgres, report)
            _wait_for_s3(home, storing, report)
            port = _airflow_port(settings)
            if with_cluster:
                cluster.wait(home, cluster.launch(home, s3.environment(home)))
                report(f"Spark: {cluster.own_master(home)}, page {cluster.own_page(home)}")
            write_endpoints(home, _addresses(home, port, outside_kafka, outside_postgres))
            settings = read_settings({**environ, **({} if outside_postgres else {"LEDGER_POSTGRES_URL": ""})})
            if watching := prometheus.launch(settings) if with_prometheus else []:
                write_endpoints(home, _addresses(home, port, outside_kafka, outside_postgres))
            if environ is os.environ:
                read_settings()  # the caller is a client of S3, too
            if when_kafka_is_up:
                when_kafka_is_up(settings)
            _start_airflow(settings, metadata_url, port, environ, report)
            prometheus.wait(home, watching)
            if with_prometheus:
                report(f"Prometheus: {prometheus.own_url(home, prometheus.PROMETHEUS)}")
        except BaseException:
            stop_parts(home, {*PARTS, airflow.MIGRATION} - running, lambda _: None)
            if not find_all(home):
                forget_addresses(home)
            raise
    return settings


def down(environ: Mapping[str, str] = os.environ, report: Report = print) -> None:
    """Stop everything that was started for this home, whatever the other settings say. Nothing running is fine."""
    home = home_of(environ)
    if not (home / "stack").exists():
        report(f"nothing runs for {home}")
        return
    with only_one(home, report):
        stop_parts(home, None, report)
        forget_addresses(home)


def status(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What runs and where, as names and values without secrets; an address is empty when nothing listens there."""
    settings = read_settings(environ)
    home, known = settings.home, read_endpoints(settings.home)
    outside = {
        kafka.PART: set_outside(environ, "LEDGER_KAFKA_BOOTSTRAP", kafka.own_bootstrap(home)),
        postgres.PART: set_outside(environ, "LEDGER_POSTGRES_URL", postgres.own_url(home)),
    }
    lines = {
        "LEDGER_HOME": str(home),
        "LEDGER_WAREHOUSE": str(settings.warehouse),
        "LEDGER_CHECKPOINTS": str(settings.checkpoints),
        "LEDGER_SPARK_MASTER": settings.spark_master,
        "LEDGER_KAFKA_BOOTSTRAP": settings.kafka_bootstrap or "",
        "LEDGER_POSTGRES_URL": mask_url(settings.postgres_url or ""),
        "POSTGRES_PASSWORD_FILE": "" if outside[postgres.PART] else str(postgres.password_file(home)),
        "AIRFLOW_URL": known.get("airflow_url", ""),
        "AIRFLOW_USERS": ",".join(airflow.USERS),  # the password of each lies beside that of AIRFLOW_USER
        "AIRFLOW_USER": airflow.USER,
        "AIRFLOW_PASSWORD_FILE": str(airflow.password_file(home)),
    }
    lines["S3_URL"] = s3.own_url(home) or "" if find_part(home, s3.PART) else ""
    lines["S3_KEYS_FILE"] = str(s3.keys_file(home)) if s3.is_on(home) else ""
    lines["SPARK_MASTER_URL"] = cluster.own_page(home) or "" if find_part(home, cluster.MASTER) else ""
    for part, name in prometheus.URLS.items():
        lines[name] = prometheus.own_url(home, part) or "" if find_part(home, part) else ""
    for part in PARTS:
        runs = "running" if find_part(home, part) else "outside" if outside.get(part) else "stopped"
        lines[part.upper().replace("-", "_")] = runs
    return lines


def forget_addresses(home: Path) -> None:
    """Forget where services listen, as nothing does any more, but not that the tables are in S3: a job would begin new ones on disk."""
    kept: dict[str, str] = {}
    if s3.is_on(home):
        with suppress(SettingsError):  # what cannot be read is forgotten as a whole
            wanted = ("postgres_url", "postgres_password_file", *s3.addresses(home))
            kept = {name: text for name, text in read_endpoints(home).items() if name in wanted}
    if kept:
        write_endpoints(home, kept)
    else:
        remove_endpoints(home)


def check_airflow_port(settings: Settings) -> None:
    """Refuse a wished port that something else listens on, before anything is started."""
    port = settings.airflow_port
    own = ports_of(settings.home).get("airflow") if find_part(settings.home, "airflow-api-server") else None
    if port and port != own and not port_is_free(port):
        raise LedgerError(f"port {port} (LEDGER_AIRFLOW_PORT) is taken by another process: stop that one, or set another port")


def refuse_other_master(environ: Mapping[str, str], home: Path) -> None:
    """Refuse a cluster whose master no job would ask, because LEDGER_SPARK_MASTER names another one."""
    if other := set_outside(environ, "LEDGER_SPARK_MASTER", cluster.own_master(home)):
        raise LedgerError(f"found LEDGER_SPARK_MASTER={other}, expected none with a cluster of our own: unset it, or run make up")


def _check_parts(environ: Mapping[str, str], home: Path, with_prometheus: bool, with_cluster: bool, with_s3: bool) -> None:
    """Refuse, before anything is started, a part that is not installed or that the settings contradict."""
    if with_prometheus:
        prometheus.check_programs()
    if with_cluster:
        refuse_other_master(environ, home)
    if with_s3:
        s3.refuse_other_storage(environ, home)


def _wait_for_s3(home: Path, started: Running | None, report: Report) -> None:
    if started:
        s3.wait(home, started)
    if find_part(home, s3.PART):
        report(f"S3: {s3.own_url(home)} (keys in {s3.keys_file(home)})")


def _start_services(settings: Settings, outside_kafka: str | None, outside_postgres: str | None, report: Report) -> str:
    """Kafka and Postgres side by side; returns the address of Airflow's metadata database, password included."""
    home = settings.home
    stack_folder(home)
    if outside_kafka:
        check_login(settings.broker())
    database = None if outside_postgres else postgres.launch(home)
    started = None if outside_kafka else kafka.launch(home)
    if outside_postgres and (reason := postgres.why_unreachable(outside_postgres)):
        reason = reason.replace(outside_postgres, mask_url(outside_postgres))
        raise LedgerError(f"Postgres at {mask_url(outside_postgres)} (LEDGER_POSTGRES_URL) is not reachable: {reason}")
    if database:
        postgres.wait(home, database)
    postgres.make_tables(outside_postgres or postgres.own_url(home, with_password=True) or "")
    report(f"Postgres: {mask_url(outside_postgres or postgres.own_url(home) or '')}")
    if outside_kafka and not kafka.answers(settings.broker(), 10):
        raise LedgerError(f"Kafka at {outside_kafka} (LEDGER_KAFKA_BOOTSTRAP) is not reachable: no broker answered within 10 s")
    if started:
        kafka.wait(home, started)
    broker = settings.broker() if outside_kafka else Broker(kafka.own_bootstrap(home) or "")
    ensure_topics(broker)
    report(f"Kafka: {broker}")
    return outside_postgres or postgres.own_url(home, "airflow", with_password=True) or ""


def _start_airflow(settings: Settings, metadata_url: str, port: int, environ: Mapping[str, str], report: Report) -> None:
    home = settings.home
    wanted = airflow.environment(settings, metadata_url, port, environ) | prometheus.airflow_environment(home)
    migration = airflow.migrate(home, wanted, metadata_url)
    if migration:
        airflow.wait_for_migration(home, migration, metadata_url)
    airflow.launch(home, wanted)
    airflow.wait(home, port)
    report(f"Airflow: http://{HOST}:{port} (user {airflow.USER}, password in {airflow.password_file(home)})")


def _airflow_port(settings: Settings) -> int:
    """The wished port; else the one in use; else a remembered or free one."""
    known = ports_of(settings.home).get("airflow")
    if settings.airflow_port:
        return claim_port(settings.home, "airflow", settings.airflow_port)
    if known and find_part(settings.home, "airflow-api-server"):
        return known
    return claim_port(settings.home, "airflow")


def _addresses(home: Path, port: int, outside_kafka: str | None, outside_postgres: str | None) -> dict[str, str]:
    """What jobs of this home may know. An outside Postgres stays out: its address may hold a password."""
    addresses = {
        "kafka_bootstrap": outside_kafka or kafka.own_bootstrap(home) or "",
        "airflow_url": f"http://{HOST}:{port}",
        "airflow_user": airflow.USER,
        "airflow_password_file": str(airflow.password_file(home)),
    }
    if find_part(home, cluster.MASTER):
        addresses["spark_master"] = cluster.own_master(home) or ""
        addresses["spark_secret_file"] = str(cluster.secret_file(home))
    if find_part(home, s3.PART):
        addresses |= s3.addresses(home)
    if find_part(home, prometheus.PROMETHEUS):
        addresses["prometheus_url"] = prometheus.own_url(home, prometheus.PROMETHEUS) or ""
    if not outside_postgres:
        addresses["postgres_url"] = postgres.own_url(home) or ""
        addresses["postgres_password_file"] = str(postgres.password_file(home))
    return addresses
