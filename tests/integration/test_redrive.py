"""A re-drive by command line, with a file of corrections, through gates and gold to a release."""

import json
from dataclasses import dataclass

import pytest

from include.demo.reconciliation import reconcile
from spark_jobs.lake import tables
from spark_jobs.releases.releases import has_unreleased_batches, newest_release
from tests.integration.conftest import Wave
from tests.support import oracle
from tests.support.checks import assert_gold_follows, assert_rows
from tests.support.ledger import ALL_STEPS, Ledger, Row

pytestmark = pytest.mark.integration


def line(row: Row, value: str) -> str:
    place = dict(zip(("topic", "partition", "offset"), oracle.place(row), strict=True))
    return json.dumps({**place, "value": value, "who": "Ada", "why": "typed wrong"})


@dataclass(frozen=True)
class Driven:
    """A pipeline after a re-drive of some rows, and what silver must hold."""

    ledger: Ledger
    split: oracle.Transactions


@pytest.fixture(scope="module")
def driven(first_wave: Wave, tmp_path_factory: pytest.TempPathFactory) -> Driven:
    """Some rows get an id of their own, others that of a row which came later and is a duplicate from now on."""
    folder = tmp_path_factory.mktemp("driven")
    ledger = first_wave.saved.copy(folder / "home")
    bronze = sorted(ledger.rows(tables.BRONZE_TRANSACTIONS), key=oracle.arrival)
    broken = [row for row in bronze if oracle.broken_rule(row)]
    rule, wrong = oracle.broken_rule(broken[0]), broken[:8]
    last = [row for row in bronze if oracle.injected(row) is None][-8:]
    values = [json.dumps(json.loads(row["value"]) | {"amount": 7}) for row in last]
    values[4:] = [json.dumps(json.loads(value) | {"transactionId": f"T-corrected-{number}"}) for number, value in enumerate(values[4:])]
    file = folder / "corrections.jsonl"

    file.write_text("\n".join([line(wrong[0], values[0]), line(last[0], values[0])]))
    refused = ledger.try_run(f"redrive --rule {rule} --table silver.transactions --corrections {file}")
    place = "/".join(map(str, oracle.place(last[0])))
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1), refused.stderr
    assert f"{place} is valid already, expected it in silver.transactions_quarantine; nothing was written" in refused.stderr
    assert ledger.rows(tables.CORRECTIONS) == []

    file.write_text("\n".join(map(line, wrong, values)))
    ledger.run(f"redrive --rule {rule} --table silver.transactions --corrections {file}")
    corrected = {oracle.place(row): value.encode() for row, value in zip(wrong, values, strict=True)}
    split = oracle.Transactions(
        row | {"value": corrected[oracle.place(row)], "headers": []} if oracle.place(row) in corrected else row for row in bronze
    )
    assert {oracle.place(row) for row in split.duplicates} >= {oracle.place(row) for row in last[:4]}
    judged = {oracle.place(row): row["outcome"] for row in ledger.rows(tables.REDRIVES)}
    others = {oracle.place(row) for row in broken if oracle.broken_rule(row) == rule} - corrected.keys()
    assert judged == dict.fromkeys(corrected, "transactions") | dict.fromkeys(others, "quarantine")
    assert has_unreleased_batches(ledger.settings)
    return Driven(ledger, split)


def test_corrected_rows_take_their_old_places(driven: Driven) -> None:
    assert_rows(driven.ledger, tables.SILVER_TRANSACTIONS, driven.split.first.values())
    assert_rows(driven.ledger, tables.TRANSACTIONS_DUPLICATES, driven.split.duplicates)
    assert_rows(driven.ledger, tables.TRANSACTIONS_QUARANTINE, driven.split.quarantine)


@pytest.mark.soak  # the same in tests/spark/reprocessing/test_redrive.py and test_gold_changes.py, without the gates between
def test_gold_follows_and_is_released(driven: Driven) -> None:
    ledger = driven.ledger
    ledger.run(*ALL_STEPS)
    assert_gold_follows(ledger, driven.split)
    release = newest_release(ledger.settings)
    assert (release.release_id, reconcile(ledger.settings, release).differences) == (2, [])
    assert not has_unreleased_batches(ledger.settings)
