"""Somebody adds two topics: a declaration, rules, a suite and an audit query for each, and nothing else in the checkout."""

from pathlib import Path

import pytest

from tests.support.added import copy_checkout, play

pytestmark = [pytest.mark.spark, pytest.mark.soak]  # two processes that run the pipeline

MODULE = "tests.spark.silver.added.run"
FILES = Path(__file__).parent / "added"
PLACES = {
    "{}.py": "spark_jobs/lake/topics/{}.py",
    "{}.yaml": "expectations/rules/{}.yaml",
    "silver.{}.json": "expectations/suites/silver.{}.json",
    "{}.sql": "spark_jobs/audit/topics/{}.sql",
}
NULLS = 'Field("merchant", empty_is_null=True)'


def add(checkout: Path, topic: str, name: str, merchant: str = NULLS) -> None:
    """The four files of a topic, under a name, with how it declares a field."""
    for file, place in PLACES.items():
        text = (FILES / file.format(topic)).read_text()
        (checkout / place.format(name)).write_text(text.replace(topic, name).replace(NULLS, merchant))


def test_a_new_topic_is_four_files_and_the_audit_finds_a_wrong_one_out(tmp_path: Path) -> None:
    """Events and versions: produced from CSV, taken, judged, released, re-driven, imported, rebuilt and audited."""
    checkout = copy_checkout(tmp_path)
    for topic in ("card_payments", "branches"):
        add(checkout, topic, topic)
    done = play(checkout, MODULE, "the topics")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "silver.card_payments_late: 4 rows, 0 differences" in done.stdout
    add(checkout, "card_payments", "card_payments_twin", 'Field("merchant")')
    found = play(checkout, MODULE, "a broken twin, and a row that was changed")
    assert found.returncode == 4, found.stdout + found.stderr
    assert "silver.card_payments (2), silver.card_payments_twin (2)" in found.stderr
