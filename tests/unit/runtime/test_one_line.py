"""Who and why are one line each: in every command that takes them, before any lease is waited for."""

import contextlib
import io
import json
import re
import time
from pathlib import Path

import pytest

from spark_jobs import run
from spark_jobs.lake import leases, tables
from spark_jobs.runtime.one_line import LONGEST, problem
from spark_jobs.runtime.settings import read_settings

COMMANDS = {
    "decide": ["decide", "wait"],
    "accept": ["accept", "--topic=accounts"],
    "forget": ["forget", "--customer=C00000001"],
    "ingestion": ["ingestion", "restart", "--wait=0"],
    "live_control": ["live_control", "restart", "--wait=0"],
    "engine_control": ["engine_control", "restart", "--wait=0"],
}
LINE_ENDS = ["two\nlines", "two\rlines", "ends\n", "\x85", "a\u2028b", "a\u2029b", "a\x1bb", "a\0b"]


def told(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[object, str]:
    """The exit code of a command, and what it says."""
    try:
        code: object = run.main(words)
    except SystemExit as stopped:
        code = stopped.code
    return code, capsys.readouterr().err


def test_every_command_that_takes_a_name_or_a_reason_is_listed() -> None:
    found = set()
    for name in run.JOBS:
        text = io.StringIO()
        with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
            run.parse_arguments([name, "--help"])
        if re.search(r"--(who|why)\b", text.getvalue()):
            found.add(name)
    assert found == set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
@pytest.mark.parametrize("option", ["--who", "--why"])
def test_a_line_end_is_refused_before_a_lease_is_waited_for(
    command: list[str], option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LEDGER_HOME", str(tmp_path))
    monkeypatch.setenv("LEDGER_KAFKA_BOOTSTRAP", "127.0.0.1:1")
    words = {"--who": "Ada", "--why": "so"}
    begun = time.monotonic()
    with leases.hold(read_settings(), tables.CONTROL, owner="another"):
        for text in LINE_ENDS:
            code, said = told([*command, *(f"{name}={value}" for name, value in (words | {option: text}).items())], capsys)
            assert (code, said.count("\n")) == (2, 1), (text, said)
            assert re.search(rf"{option}: found U\+[0-9A-F]{{4}} at character \d, expected one line of text", said)
    assert time.monotonic() - begun < 20
    assert [file.name for file in tmp_path.rglob("*.json")] == []  # nothing was asked of a service


@pytest.mark.parametrize("field", ["who", "why", "topic"])
def test_a_correction_with_a_line_end_is_refused_before_a_lease_is_waited_for(
    field: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("LEDGER_HOME", str(tmp_path))
    file = tmp_path / "corrections.jsonl"
    fields = {"topic": "transactions", "partition": 0, "offset": 1, "value": "{}", "who": "Ada", "why": "typed wrong"}
    file.write_text(json.dumps(fields | {field: "two\nlines"}))
    monkeypatch.setattr(leases, "WAIT_SECONDS", 1)
    with leases.hold(read_settings(), tables.SILVER_OWNED, owner="another"):
        assert run.main(["redrive", "--rule=amount_scale", f"--corrections={file}"]) == 2
    assert f"line 1: {field}: found U+000A at character 4, expected one line of text" in caplog.text


def test_a_rule_that_no_table_knows_is_refused_before_a_lease_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEDGER_HOME", str(tmp_path))
    begun = time.monotonic()
    with leases.hold(read_settings(), tables.SILVER_OWNED, owner="another"):
        assert run.main(["redrive", "--rule=nope"]) == 2
    assert time.monotonic() - begun < 20


def test_a_reason_for_the_record_may_be_missing_where_nothing_is_decided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEDGER_HOME", str(tmp_path))
    assert run.main(["ingestion", "stop", "--wait=0"]) == 0


@pytest.mark.parametrize("text", ["x", " x ", "ä€😀", "$(id) {{ 7 }}", "x" * LONGEST])
def test_a_line_of_text_is_taken_as_it_is(text: str) -> None:
    assert problem(text) is None


def test_no_text_and_too_much_of_it() -> None:
    assert problem("") == problem("  ") == f"found no text, expected 1 to {LONGEST} characters"
    assert problem("", least=0) is None
    assert problem("x" * (LONGEST + 1)) == f"found {LONGEST + 1} characters, expected 1 to {LONGEST}"
    assert problem(7) == problem(None) == problem(["x"]) == "found no text, expected one line of text"
    assert problem("a\ud800") == "found U+D800 at character 2, expected one line of text"
