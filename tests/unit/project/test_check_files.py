"""The checks of `make lint` that are ours, and what holds for every text of the project."""

import re
from pathlib import Path

import pytest

from include.setup.check_files import check_agreement, check_jar_lock, check_requirements, check_yaml, project_files
from spark_jobs.runtime.settings import ROOT

TEXTS = (
    ".py",
    ".md",
    ".yaml",
    ".yml",
    ".toml",
    ".sql",
    ".xml",
    ".properties",
    ".in",
    ".txt",
    ".lock",
    "Makefile",
    "Dockerfile",
    "run",
    ".example",
)
# Machines of package registries, and folders of somebody's machine: neither is the same for the next reader.
MUST_NOT_STAND = re.compile(
    r"https?://[a-z0-9.-]*(?:maven|pypi|pythonhosted|npmjs|golang|debian)|(?<![\w.])/(?:home/|Users/|work/|root/\.)\w"
)
SUM = "0" * 64
PIN = f"one==1.5 \\\n    --hash=sha256:{SUM}\n    # via -r requirements.in\n"


@pytest.mark.parametrize("wanted", ["one", "one==1.5", "One<2  # a reason", "one[extra]>=1", "# nothing\n\n"])
def test_a_lock_that_holds_what_is_wanted(wanted: str) -> None:
    assert list(check_requirements(wanted, PIN)) == []


@pytest.mark.parametrize(
    ("wanted", "locked", "finding"),
    [
        ("two", PIN, "requirements.txt: found two None, expected two (of requirements.in): lock again"),
        ("one==1.6", PIN, "requirements.txt: found one 1.5, expected one==1.6 (of requirements.in): lock again"),
        ("", "one==1.5\n", "requirements.txt: found 'one==1.5', expected name==version and at least one --hash=sha256:..."),
        ("", f"one>=1 --hash=sha256:{SUM}\n", "expected name==version"),
        ("one two", PIN, "requirements.in: found 'one two', expected a requirement such as name==1.2"),
    ],
)
def test_a_lock_that_does_not(wanted: str, locked: str, finding: str) -> None:
    (found,) = check_requirements(wanted, locked)
    assert finding in found


def test_a_jar_lock() -> None:
    assert list(check_jar_lock(f"# jars\n{SUM}  org.one:a:1\n{SUM}  org.one:b_2.13:1.0\n")) == []


@pytest.mark.parametrize(
    ("lines", "finding"),
    [
        (f"{SUM}  org.one:a:1\n{SUM}  org.one:a:2", "2: found org.one:a twice, expected one version"),
        (f"{SUM} org.one:a:1", f"1: found '{SUM} org.one:a:1', expected `sha256  group:artifact:version`"),
        ("abc  org.one:a:1", "expected `sha256  group:artifact:version`"),
        ("# only a comment", "1: found no jar"),
        (f"  \n{SUM}  org.one:a:1", "expected `sha256  group:artifact:version`"),
    ],
)
def test_a_jar_lock_that_is_none(lines: str, finding: str) -> None:
    (found,) = check_jar_lock(lines)
    assert finding in found


def test_a_yaml_file_that_does_not_parse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("include.setup.check_files.ROOT", tmp_path)
    file = tmp_path / "rules.yaml"
    file.write_text("a: [1")
    (found,) = check_yaml(file)
    assert found.startswith("rules.yaml: while parsing a flow sequence")
    file.write_text("a: [1]")
    assert list(check_yaml(file)) == []


def test_no_text_names_a_registry_or_a_folder_of_one_machine() -> None:
    files = list(project_files(*TEXTS))
    assert len(files) > 20
    found = [
        f"{file.relative_to(ROOT)}:{number}"
        for file in files
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if MUST_NOT_STAND.search(line)
    ]
    assert found == []


def test_no_python_file_is_longer_than_300_lines() -> None:
    files = list(project_files(".py"))
    assert len(files) > 20
    assert {str(file.relative_to(ROOT)): lines for file in files if (lines := len(file.read_text().splitlines())) > 300} == {}


def test_both_locks_pin_a_package_to_one_version() -> None:
    assert list(check_agreement("one==1 \\\n    --hash\ntwo==1\n", "one==1\nthree==3\n")) == []
    assert list(check_agreement("one==1\n", "one==2\n")) == [
        "include/dev/requirements.txt: found one 2, expected 1 (of requirements.txt): lock again"
    ]
