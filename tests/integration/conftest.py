"""Real services for the tests, started once, and stopped however the tests end."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from include.producer import Message, publish
from include.stack import kafka
from include.stack.lifecycle import down, up
from include.stack.shutdown import stop_parts
from spark_jobs.topics import ensure_topics
from tests.integration import waves
from tests.integration.ledger import ALL_STEPS, Ledger


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of the whole stack come last and side by side: Airflow is up for no longer than it is needed."""
    items.sort(key=lambda item: "stack_home" in getattr(item, "fixturenames", ()))


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker with the source topics, for the tests that need no more of the stack."""
    home = tmp_path_factory.mktemp("broker")
    try:
        if started := kafka.launch(home):
            kafka.wait(home, started)
        bootstrap = kafka.own_bootstrap(home)
        assert bootstrap
        ensure_topics(bootstrap)
        yield bootstrap
    finally:
        stop_parts(home, None, lambda _: None)


@dataclass(frozen=True)
class Wave:
    """A pipeline that holds a first wave, what was sent to it, and a copy for tests that go another way from there."""

    ledger: Ledger
    sent: list[Message]
    saved: Ledger


@pytest.fixture(scope="session")
def first_wave(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Wave:
    """60 % of the generated transactions, taken through every layer to a release."""
    folder = tmp_path_factory.mktemp("first")
    ledger = Ledger(folder / "home", broker)
    sent, _ = waves.split_plan()
    assert publish(broker, sent).is_delivered
    ledger.run("bronze --available-now", *ALL_STEPS)
    return Wave(ledger, sent, ledger.copy(folder / "saved"))


@pytest.fixture(scope="session")
def second_wave(broker: str, first_wave: Wave) -> list[Message]:
    """The messages of the second wave, which Kafka has from now on."""
    sent = waves.second_wave(first_wave.sent, waves.split_plan()[1])
    assert publish(broker, sent).is_delivered
    return sent


@pytest.fixture(scope="session")
def stack_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The home of a whole stack: broker, Postgres, Airflow."""
    home = tmp_path_factory.mktemp("stack") / "a home"
    environ = {"LEDGER_HOME": str(home)}
    try:
        up(environ, tell=lambda _: None)
        yield home
    finally:
        down(environ, tell=lambda _: None)
