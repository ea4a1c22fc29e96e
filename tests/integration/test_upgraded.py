"""An older version's warehouse is taken over, backed up while ingestion runs, and brought into another home: the pipeline goes on there."""

import io
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from spark_jobs.releases.releases import newest_release
from spark_jobs.runtime.settings import ROOT
from spark_jobs.service import heartbeat
from spark_jobs.service.services import INGESTION
from tests.integration.conftest import Broker, Wave
from tests.integration.test_restart import ingests
from tests.support import waves
from tests.support.checks import assert_bronze_is, assert_gold_follows, assert_silver_follows
from tests.support.ledger import ALL_STEPS, JOB_SECONDS, Ledger, await_that

pytestmark = [pytest.mark.integration, pytest.mark.faults]

OLDER = "ec92007bd66ad6cef823c135d6f7f53af31df83f"  # a version that people run: put the newest one here whenever a version is published
# Its jobs without Spark share a process: what they write is tested, not how they start, and each would import Great Expectations.
STEPS = (("bronze --available-now",), ("silver",), ("gate bronze", "gate silver"), ("gold",), ("gate gold", "release"))
RUN = "import sys; from spark_jobs.run import main; sys.exit(next(filter(None, (main(job.split()) for job in sys.argv[1:])), 0))"


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The older version's files, with the jars of this one."""
    packed = subprocess.run(["git", "archive", OLDER], cwd=ROOT, capture_output=True, check=False)
    if packed.returncode != 0:
        pytest.skip(f"this copy of the repository has no commit {OLDER}: {packed.stderr.decode().strip()}")
    folder = tmp_path_factory.mktemp("older")
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as files:
        files.extractall(folder, filter="data")
    (folder / ".jars").symlink_to(ROOT / ".jars")
    return folder


def run_code(code: Path, ledger: Ledger, *words: str, said: str = "") -> None:
    """Run Python with a version's code; it must end well, and say so."""
    command, environment = [sys.executable, *words], ledger.environment(PYTHONPATH=str(code))
    done = subprocess.run(command, cwd=code, env=environment, capture_output=True, text=True, check=False, timeout=JOB_SECONDS)
    assert done.returncode == 0, f"{words}: {done.stderr}"
    assert said in done.stdout


def test_an_older_warehouse_is_taken_over_and_goes_on_in_a_restored_home(
    older: Path, broker: Broker, first_wave: Wave, tmp_path: Path
) -> None:
    ledger = Ledger(tmp_path / "home", broker.bootstrap, first_wave.ledger.engine)
    ledger.offer_engine()
    for jobs in STEPS:
        run_code(older, ledger, "-c", RUN, *jobs)
    release = newest_release(ledger.settings)
    ledger.run("migrate")
    assert newest_release(ledger.settings) == release

    with ledger.running("bronze", output=(output := tmp_path / "bronze.log")) as bronze:
        await_that(lambda: ingests(ledger, bronze.pid))
        ends = "ingestion ends its batch; the DAG bronze_ingestion starts it again"
        run_code(ROOT, ledger, "-m", "include.backup", "create", str(tmp_path / "copy"), said=ends)
        assert bronze.wait(60) == 0, output.read_text()
    other = Ledger(tmp_path / "other", broker.bootstrap, first_wave.ledger.engine)
    # Its audit says that silver and gold are what bronze says.
    run_code(ROOT, other, "-m", "include.backup", "restore", str(tmp_path / "copy"))
    assert heartbeat.read(other.settings, INGESTION) == []

    broker.send(waves.few_new(broker.sent, "newer"))
    other.run("bronze --available-now", *ALL_STEPS)
    assert newest_release(other.settings).release_id == release.release_id + 1
    assert_bronze_is(other, broker.sent)
    assert_gold_follows(other, assert_silver_follows(other))
