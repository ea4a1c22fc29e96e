"""A real broker for the tests of a module or of a session."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from include.stack import kafka
from include.stack.shutdown import stop_parts
from spark_jobs.kafka.topics import ensure_topics
from spark_jobs.runtime.kafka_config import Broker


@contextmanager
def running_broker(home: Path) -> Iterator[str]:
    """The bootstrap address of a broker that has the source topics; it is stopped behind the block, with whatever was started for home."""
    try:
        if started := kafka.launch(home):
            kafka.wait(home, started)
        bootstrap = kafka.own_bootstrap(home)
        assert bootstrap
        ensure_topics(Broker(bootstrap))
        yield bootstrap
    finally:
        stop_parts(home, None, lambda _: None)
