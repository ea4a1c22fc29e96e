"""The export as a process of its own: keys from the environment only, killed with kill -9 in the middle, an S3 service on this machine."""

import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.support.ledger import Ledger
from tests.support.publishing import released_on
from tests.support.targets import KEYS, Bucket, days_of, leftovers, s3_server
from tests.support.warehouse import good_rows, write

pytestmark = pytest.mark.integration

NAME = "gold.enriched_transactions"


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    with s3_server() as endpoint:
        yield Bucket(endpoint, "raw")


def test_to_s3_with_keys_of_the_environment_also_after_a_kill(tmp_path: Path, bucket: Bucket) -> None:
    ledger = Ledger(tmp_path / "home")
    write(ledger.settings, good_rows())
    released_on(ledger.settings, datetime.now(UTC))
    command = f"export --table {NAME} --start 2013-01-01 --end 2013-02-01 --to s3://exports/raw"
    environment = {**KEYS, "AWS_ENDPOINT_URL": bucket.endpoint, "AWS_REGION": "eu-central-1"}
    killed = ledger.try_run(command, LEDGER_KILL_POINT="between two files of an export", **environment)
    assert killed.returncode == -9, killed.stderr
    assert leftovers(bucket)
    done = ledger.try_run(command, **environment)
    assert done.returncode == 0, done.stderr
    ((table,),) = (files.values() for files in days_of(bucket, NAME).values())
    assert table.num_rows == 4
    assert leftovers(bucket) == []
    assert f"{NAME}: 4 rows, 1 days, 1 files" in done.stderr
    assert_no_key(killed, done)


def assert_no_key(*jobs: subprocess.CompletedProcess[str]) -> None:
    for done in jobs:
        assert not [key for key in KEYS.values() if key in done.stdout + done.stderr]
