"""A real broker for the tests of a module or of a session."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from include.stack import kafka
from include.stack.shutdown import stop_parts
from spark_jobs.kafka.topics import ensure_topics


@contextmanager
def running_broker(home: Path) -> Iterator[str]:
    """The bootstrap address of a broker that has the source topics; it is stopped behind the block, with whatever was started for home."""
    try:
        if started := kafka.launch(home):
            kafka.wait(home, started)
        bootstrap = kafka.own_bootstrap(home)
        assert bootstrap
        ensure_topics(bootstrap)
        yield bootstrap
    finally:
        stop_parts(home, None, lambda _: None)
