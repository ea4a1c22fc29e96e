"""What an older version of the project has written, the present one takes over: its tables, its checkpoints, its releases."""

import io
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from spark_jobs.releases.releases import newest_release
from spark_jobs.runtime.settings import ROOT
from tests.integration.conftest import Broker, Wave
from tests.support import waves
from tests.support.checks import assert_bronze_is, assert_gold_follows, assert_silver_follows
from tests.support.ledger import ALL_STEPS, JOB_SECONDS, Ledger

pytestmark = pytest.mark.integration

OLDER = "ec92007bd66ad6cef823c135d6f7f53af31df83f"  # a version that people run: put the newest one here whenever a version is published


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


def run_older(code: Path, ledger: Ledger, *commands: str) -> None:
    for command in commands:
        words, environment = [sys.executable, "-m", "spark_jobs.run", *command.split()], ledger.environment(PYTHONPATH=str(code))
        done = subprocess.run(words, cwd=code, env=environment, capture_output=True, text=True, check=False, timeout=JOB_SECONDS)
        assert done.returncode == 0, f"{command}: {done.stderr}"


def test_the_pipeline_goes_on_with_an_older_warehouse(older: Path, broker: Broker, first_wave: Wave, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "home", broker.bootstrap, first_wave.ledger.engine)
    ledger.offer_engine()
    run_older(older, ledger, "bronze --available-now", *ALL_STEPS)
    release = newest_release(ledger.settings)
    ledger.run("migrate")
    assert newest_release(ledger.settings) == release
    broker.send(waves.few_new(broker.sent, "newer"))
    ledger.run("bronze --available-now", *ALL_STEPS, "audit")
    assert newest_release(ledger.settings).release_id == release.release_id + 1
    assert_bronze_is(ledger, broker.sent)
    assert_gold_follows(ledger, assert_silver_follows(ledger))
