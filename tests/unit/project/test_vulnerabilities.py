"""What CI says of pip-audit's answer, and of none."""

import json
import subprocess

import pytest

from include.setup import vulnerabilities

REPORT = {
    "dependencies": [
        {"name": "one", "version": "1.0", "vulns": []},
        {"name": "two", "version": "2.0", "vulns": [{"id": "CVE-1", "fix_versions": ["2.1"]}, {"id": "CVE-2", "fix_versions": []}]},
        {"name": "three", "skip_reason": "not on the index"},
    ]
}


def answer(monkeypatch: pytest.MonkeyPatch, report: str | None) -> None:
    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        if report is None:
            raise subprocess.TimeoutExpired(command, 1)
        return subprocess.CompletedProcess(command, 1, report, "")

    monkeypatch.setattr(subprocess, "run", run)


def test_every_vulnerability_is_a_line_and_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    answer(monkeypatch, json.dumps(REPORT))
    assert vulnerabilities.main() == 1
    assert capsys.readouterr().out == "two 2.0: CVE-1, fixed in 2.1\ntwo 2.0: CVE-2, fixed in no version\n"


@pytest.mark.parametrize("report", [None, "", "ERROR", '{"dependencies": [{"name": "one", "skip_reason": "not found"}]}'])
def test_a_service_that_does_not_answer_is_said_and_passes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], report: str | None
) -> None:
    answer(monkeypatch, report)
    assert vulnerabilities.main() == 0
    assert capsys.readouterr().out.startswith("NOT AUDITED: no vulnerability service answered")
