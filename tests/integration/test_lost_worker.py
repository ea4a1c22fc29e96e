"""The cluster of `make cluster`: a worker is lost in the middle of a job."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from include.stack import cluster
from include.stack.endpoints import write_endpoints
from include.stack.lifecycle import status
from include.stack.processes import find_all, find_part
from include.stack.shutdown import stop_parts
from spark_jobs.lake import tables
from spark_jobs.lake.tables import Table
from tests.integration.conftest import Broker
from tests.support import waves
from tests.support.brokers import running_broker
from tests.support.checks import assert_bronze_is, assert_silver_follows
from tests.support.clusters import QUICK
from tests.support.ledger import Ledger, await_that

pytestmark = pytest.mark.integration

MANY = 20_000


@pytest.fixture
def full_broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker with the first messages, and the last of them so often that silver is at work for a while."""
    with running_broker(tmp_path / "broker") as bootstrap:
        broker = Broker(bootstrap)
        first = waves.split_plan()[0]
        broker.send([*first, *[first[-1]] * MANY])
        yield broker


@pytest.fixture
def on_cluster(full_broker: Broker, tmp_path: Path) -> Iterator[Ledger]:
    """An empty home, whose jobs run on a cluster of its own."""
    ledger = Ledger(home := tmp_path / "home", full_broker.bootstrap)
    try:
        cluster.wait(home, cluster.launch(home, QUICK))
        write_endpoints(home, {"spark_master": cluster.own_master(home) or "", "spark_secret_file": str(cluster.secret_file(home))})
        yield ledger
    finally:
        stop_parts(home, None, lambda _: None)
    assert find_all(home) == []


def test_a_lost_worker_loses_and_repeats_nothing(on_cluster: Ledger, full_broker: Broker) -> None:
    """Silver loses a worker with what it has shuffled; bronze, which the driver reads and writes, has nothing there to lose."""
    on_cluster.run("bronze --available-now")
    assert_bronze_is(on_cluster, full_broker.sent)
    lost = cluster.WORKERS[1]
    lose_worker(on_cluster, "silver", tables.SILVER_TRANSACTIONS, lost, cluster.scratch(on_cluster.home, lost), "shuffle_*.data")
    assert_silver_follows(on_cluster)
    told = status({"LEDGER_HOME": str(on_cluster.home)})
    assert [told[part] for part in ("SPARK_MASTER", "SPARK_WORKER_1", "SPARK_WORKER_2")] == ["running", "running", "stopped"]
    assert told["LEDGER_SPARK_MASTER"] == cluster.own_master(on_cluster.home)
    on_cluster.run("gold")  # on the worker that is left
    cluster.wait(on_cluster.home, cluster.launch(on_cluster.home, QUICK))  # what `make cluster` does: it starts what does not run
    assert status({"LEDGER_HOME": str(on_cluster.home)})["SPARK_WORKER_2"] == "running"
    audit = on_cluster.try_run("audit", LEDGER_SPARK_MASTER="local[2]")  # what is there is compared, so one JVM will do
    assert audit.returncode == 0, audit.stderr


def lose_worker(ledger: Ledger, command: str, table: Table, worker: str, folder: Path, pattern: str) -> None:
    """Run a job, and kill a worker and its executors as soon as there is such a new file; it is before the commit."""
    output, files = ledger.home / f"{worker}.txt", set(folder.rglob(pattern))
    with ledger.running(command, output) as job:
        await_that(lambda: set(folder.rglob(pattern)) - files or job.poll() is not None)
        victim = find_part(ledger.home, worker)
        assert victim
        for process in (victim, *victim.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):  # an executor ends by itself as soon as its worker has gone
                process.kill()
        assert not (ledger.exists(table) and ledger.rows(table)), "killed after the commit"
        assert job.wait(300) == 0, output.read_text()
