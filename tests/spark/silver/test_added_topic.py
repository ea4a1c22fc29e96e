"""Somebody adds two topics: a declaration, rules, a suite and an audit query for each, and nothing else in the checkout."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from spark_jobs.runtime.settings import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.soak]  # two processes that run the pipeline

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


def play(checkout: Path, part: str) -> subprocess.CompletedProcess[str]:
    """Some commands of the pipeline, by the code of that checkout."""
    words = [sys.executable, "-m", "tests.spark.silver.added.run", str(checkout / "home"), part]
    return subprocess.run(words, cwd=checkout, capture_output=True, text=True, check=False)


def test_a_new_topic_is_four_files_and_the_audit_finds_a_wrong_one_out(tmp_path: Path) -> None:
    """Events and versions: produced from CSV, taken, judged, released, re-driven, imported, rebuilt and audited."""
    checkout = tmp_path / "checkout"
    for folder in ("spark_jobs", "expectations", "include", "tests"):
        shutil.copytree(ROOT / folder, checkout / folder, ignore=shutil.ignore_patterns("__pycache__"))
    (checkout / ".jars").symlink_to(ROOT / ".jars")
    for topic in ("card_payments", "branches"):
        add(checkout, topic, topic)
    done = play(checkout, "the topics")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "silver.card_payments_late: 4 rows, 0 differences" in done.stdout
    add(checkout, "card_payments", "card_payments_twin", 'Field("merchant")')
    found = play(checkout, "a broken twin, and a row that was changed")
    assert found.returncode == 4, found.stdout + found.stderr
    assert "silver.card_payments (2), silver.card_payments_twin (2)" in found.stderr
