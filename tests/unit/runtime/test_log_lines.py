"""A job's log as lines of JSON: every line can be read, says whose it is, and shows no value; errors are found in it as in text."""

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from spark_jobs.runtime.log_lines import JsonFormatter, TextFormatter, error_line
from spark_jobs.runtime.settings import ROOT

QUOTING = "[CAST_INVALID_INPUT] The value 'Ada Lovelace' cannot be cast SQLSTATE: 22018"


def record(level: int, message: str, *arguments: object) -> logging.LogRecord:
    return logging.LogRecord("ledger", level, "file.py", 1, message, arguments, None)


def run(home: Path, *words: str, form: str = "json") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "LEDGER_HOME": str(home), "LEDGER_LOG_FORMAT": form}
    command = [sys.executable, "-m", "spark_jobs.run", "--run-id", "run 7", *words]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def test_every_line_of_a_job_is_json_with_its_run(tmp_path: Path) -> None:
    done = run(tmp_path, "migrate")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert {(line["job"], line["run_id"], line["level"]) for line in lines} == {("migrate", "run 7", "INFO")}
    assert all(line["time"].endswith("Z") for line in lines)


@pytest.mark.parametrize("form", ["json", "text"])
def test_the_error_of_a_job_is_found_in_either_form(tmp_path: Path, form: str) -> None:
    done = run(tmp_path, "release", form=form)
    assert done.returncode != 0
    assert error_line(done.stderr).startswith("no gate has judged bronze.transactions"), done.stderr


def test_a_line_names_the_table_and_the_batch_of_its_message() -> None:
    line = json.loads(JsonFormatter("silver", "r").format(record(logging.INFO, "%s: batch %d has 5 rows", "silver.transactions", 12)))
    assert (line["table"], line["batch"], line["message"]) == ("silver.transactions", 12, "silver.transactions: batch 12 has 5 rows")
    assert "table" not in json.loads(JsonFormatter("silver", "r").format(record(logging.INFO, "nothing new")))


def test_no_form_shows_a_value_that_a_program_quotes() -> None:
    try:
        raise ValueError(QUOTING)
    except ValueError:
        failed = record(logging.ERROR, QUOTING)
        failed.exc_info = sys.exc_info()
    for formatter in (JsonFormatter("gold", "r"), TextFormatter()):
        written = formatter.format(failed)
        assert "CAST_INVALID_INPUT" in written
        assert "Ada" not in written
    assert "ValueError" in json.loads(JsonFormatter("gold", "r").format(failed))["stack"]


def test_half_a_line_is_no_error() -> None:
    assert error_line('{"time": "2026-01-01", "level": "ERR') == '{"time": "2026-01-01", "level": "ERR'
    assert error_line("") == "no output"
