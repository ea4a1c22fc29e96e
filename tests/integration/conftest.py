"""Real services for the tests, started once, and stopped however the tests end."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from include.producer import Message, publish
from include.stack import airflow
from include.stack.airflow_api import AirflowApi
from include.stack.lifecycle import down, up
from spark_jobs.runtime import kafka_config
from spark_jobs.runtime.settings import Settings, read_endpoints, read_settings
from spark_jobs.service import heartbeat
from spark_jobs.service.services import ENGINE
from tests.support import waves
from tests.support.brokers import running_broker
from tests.support.ledger import ALL_STEPS, MASTER, Ledger, await_that
from tests.support.listeners import HOST, MailServer, Webhook, listening, port_of

WEBHOOK_TOKEN = "t0ken-that-no-log-shows"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of the whole stack come last and side by side: Airflow is up for no longer than it is needed."""
    items.sort(key=lambda item: "stack_home" in getattr(item, "fixturenames", ()))


@dataclass(frozen=True)
class Broker:
    """A broker and every message that it has."""

    bootstrap: str
    sent: list[Message] = field(default_factory=list)

    def send(self, messages: list[Message]) -> list[Message]:
        """Send them; every one is acknowledged."""
        assert publish(kafka_config.Broker(self.bootstrap), messages).is_delivered
        self.sent.extend(messages)
        return messages


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker with the source topics, for the tests that need no more of the stack."""
    with running_broker(tmp_path_factory.mktemp("broker")) as bootstrap:
        yield Broker(bootstrap)


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path | None]:
    """The folder of an engine; none on a cluster. Jobs that borrow its JVM are processes as ever, and find it warm."""
    if not os.environ.get(MASTER, "local").startswith("local"):
        yield None
        return
    with running_engine(Ledger(tmp_path_factory.mktemp("engine") / "home")) as folder:
        yield folder


@contextmanager
def running_engine(ledger: Ledger) -> Iterator[Path]:
    """The folder of an engine of a home, which takes jobs.

    It compiles as a job does: in the few minutes that it lives here, the slow compiler would take more than it gives.
    """
    said = ledger.home.with_name("engine.log")
    with ledger.running("engine", output=said, JAVA_TOOL_OPTIONS="-XX:TieredStopAtLevel=1") as process:
        await_that(lambda: process.poll() is not None or is_running(ledger.settings))
        assert process.poll() is None, said.read_text()
        yield ENGINE.folder(ledger.settings)


def is_running(settings: Settings) -> bool:
    """Whether an engine takes jobs."""
    beat = heartbeat.read_one(settings, ENGINE, ENGINE.command)
    return beat is not None and beat.state == heartbeat.RUNNING


@dataclass(frozen=True)
class Wave:
    """A pipeline that holds a first wave, what was sent to it, and a copy for tests that go another way from there."""

    ledger: Ledger
    sent: list[Message]
    saved: Ledger


@pytest.fixture(scope="session")
def first_sent(broker: Broker) -> list[Message]:
    """60 % of the generated transactions, with customers and accounts, which Kafka has from now on."""
    return broker.send(waves.split_plan()[0])


@pytest.fixture(scope="session")
def first_wave(broker: Broker, first_sent: list[Message], engine: Path | None, tmp_path_factory: pytest.TempPathFactory) -> Wave:
    """The first messages, taken through every layer to a release."""
    folder = tmp_path_factory.mktemp("first")
    ledger = Ledger(folder / "home", broker.bootstrap, engine)
    ledger.run("bronze --available-now", *ALL_STEPS)
    return Wave(ledger, first_sent, ledger.copy(folder / "saved"))


@pytest.fixture(scope="session")
def second_wave(broker: Broker, first_wave: Wave) -> list[Message]:
    """The messages of the second wave, which Kafka has from now on."""
    return broker.send(waves.second_wave(first_wave.sent, waves.split_plan()[1]))


@dataclass(frozen=True)
class Alerts:
    """What the stack's alerts are sent to, and the settings that say so."""

    webhook: Webhook
    mail: MailServer
    environ: dict[str, str]


@pytest.fixture(scope="session")
def alerts() -> Iterator[Alerts]:
    """A webhook and a mail server; their settings are in the environment of this process too."""
    webhook, mail = Webhook(), MailServer()
    server = {"conn_type": "smtp", "host": HOST, "port": port_of(mail), "extra": {"disable_ssl": True, "disable_tls": True}}
    environ = {
        "LEDGER_ALERT_WEBHOOK": f"http://{HOST}:{port_of(webhook)}/hook/{WEBHOOK_TOKEN}",
        "LEDGER_ALERT_MAIL": "operators@example.org",
        "AIRFLOW_CONN_SMTP_DEFAULT": json.dumps(server),
    }
    with listening(webhook, mail), pytest.MonkeyPatch.context() as patch:
        for name, value in environ.items():
            patch.setenv(name, value)
        yield Alerts(webhook, mail, environ)


def lineage_file(home: Path) -> Path:
    """Where the stack of a home sends lineage, Airflow's and that of jobs."""
    return home.with_name("lineage.jsonl")


@pytest.fixture(scope="session")
def stack_home(tmp_path_factory: pytest.TempPathFactory, alerts: Alerts) -> Iterator[Path]:
    """The home of a whole stack: broker, Postgres, Airflow."""
    home = tmp_path_factory.mktemp("stack") / "a home"
    names = {"TYPE": "file", "LOG_FILE_PATH": str(lineage_file(home)), "APPEND": "true"}
    lineage = {f"OPENLINEAGE__TRANSPORT__{name}": text for name, text in names.items()}
    environ = {"LEDGER_HOME": str(home), **alerts.environ, **lineage}
    try:
        up(environ, report=lambda _: None)
        yield home
    finally:
        down(environ, report=lambda _: None)


@pytest.fixture(scope="session")
def settings(stack_home: Path) -> Settings:
    """Where the stack's services and tables are."""
    return read_settings({"LEDGER_HOME": str(stack_home)})


@pytest.fixture(scope="session")
def api(stack_home: Path) -> AirflowApi:
    """The stack's Airflow, as its administrator."""
    return AirflowApi(read_endpoints(stack_home)["airflow_url"], airflow.USER, airflow.password_file(stack_home).read_text())


@pytest.fixture
def warm(settings: Settings, engine: Path | None) -> Iterator[None]:
    """Spark jobs of Airflow's tasks borrow the JVM of an engine, meanwhile; without it Airflow submits them."""
    Ledger(settings.home, engine=engine).offer_engine()
    yield
    if engine:
        (settings.checkpoints / engine.name).unlink()
