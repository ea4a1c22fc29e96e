"""A broker of their own for tests that hurt it, and what they start."""

from collections.abc import Iterator

import pytest

from include.stack.processes import mark
from spark_jobs.runtime.settings import Settings, read_settings
from tests.support.brokers import running_broker


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """A home with a broker, in the environment of this process; whatever was started for it is stopped."""
    home = tmp_path_factory.mktemp("faults")
    with running_broker(home) as bootstrap:
        environ = {"LEDGER_HOME": str(home), "LEDGER_KAFKA_BOOTSTRAP": bootstrap, **mark(home, "test")}
        with pytest.MonkeyPatch.context() as patch:
            for name, value in environ.items():
                patch.setenv(name, value)
            yield read_settings()
