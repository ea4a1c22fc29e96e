"""A broker for the tests of a file, which may restart it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.brokers import running_broker


@pytest.fixture(scope="module")
def home_of_broker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("broker")


@pytest.fixture(scope="module")
def bootstrap(home_of_broker: Path) -> Iterator[str]:
    with running_broker(home_of_broker) as bootstrap:
        yield bootstrap
