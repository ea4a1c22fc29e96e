"""The producer's command line: what it refuses, and how it sums up."""

from collections import Counter
from pathlib import Path

import pytest

from include.producer.__main__ import main, summary
from include.producer.publish import Counts, Part

GENERATE = ["generate", "--transactions", "10"]


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ([], "required"),
        (["replay"], "--data"),
        (["generate"], "--transactions"),
        (["generate", "--transactions", "0"], "--transactions: found '0'"),
        (["generate", "--transactions", "1e3"], "--transactions: found '1e3'"),
        ([*GENERATE, "--duplicates", "1.01"], "--duplicates: found '1.01', expected a share from 0 to 1"),
        ([*GENERATE, "--malformed", "-0.1"], "--malformed: found '-0.1'"),
        ([*GENERATE, "--late", "nan"], "--late: found 'nan'"),
        ([*GENERATE, "--late", "some"], "--late: found 'some'"),
        ([*GENERATE, "--rate", "-1"], "--rate: found '-1', expected a number >= 0"),
        ([*GENERATE, "--rate", "inf"], "--rate: found 'inf'"),
        ([*GENERATE, "--shuffle-seconds", "-1"], "--shuffle-seconds: found '-1'"),
        ([*GENERATE, "--event-time", "then"], "--event-time"),
        ([*GENERATE, "--only", "customers,loans"], "--only: found 'customers,loans', expected some of customers,accounts,transactions"),
        ([*GENERATE, "--seed", "-1"], "--seed: found '-1'"),
        (["replay", "--data", "/does/not/exist"], "customers.csv is not there; accounts.csv is not there; transactions.csv is not there"),
    ],
)
def test_unusable_arguments_give_one_line_and_exit_code_2(arguments: list[str], found: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    out, err = capfd.readouterr()
    assert found in err
    assert err.count("\n") == 1
    assert out == ""


def test_without_a_broker_in_settings_it_says_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LEDGER_HOME", str(tmp_path))
    monkeypatch.delenv("LEDGER_KAFKA_BOOTSTRAP", raising=False)
    assert main(GENERATE) == 2
    err = capfd.readouterr().err
    assert "make up" in err
    assert err.count("\n") == 1


def test_the_summary_counts_topics_injected_kinds_and_all() -> None:
    sent: Counter[Part] = Counter(
        {
            ("customers", None): 5,
            ("transactions", None): 90,
            ("transactions", "duplicate"): 3,
            ("transactions", "duplicate:conflicting"): 1,
            ("transactions", "malformed:parseable"): 2,
            ("transactions", "malformed:type_known"): 4,
            ("transactions", "late"): 10,
        }
    )
    acknowledged = sent - Counter({("transactions", "late"): 1})
    assert summary(Counts(sent, acknowledged)) == [
        "customers: sent 5, acknowledged 5",
        "transactions: sent 110, acknowledged 109",
        "duplicates: sent 4, acknowledged 4",
        "of these conflicting: sent 1, acknowledged 1",
        "malformed: sent 6, acknowledged 6",
        "late: sent 10, acknowledged 9",
        "total: sent 115, acknowledged 114",
    ]


def test_delivered_means_all_sent_and_all_acknowledged() -> None:
    sent: Counter[Part] = Counter({("accounts", None): 2})
    fewer: Counter[Part] = Counter({("accounts", None): 1})
    assert Counts(sent, sent.copy(), is_complete=True).is_delivered
    assert not Counts(sent, sent.copy()).is_delivered
    assert not Counts(sent, fewer, is_complete=True).is_delivered
