"""Writing a database of DuckDB, in a process of its own: `python -m spark_jobs.releases.duckdb_file` with JSON on standard input.

A native library that hangs or crashes there takes no job with it, and no job loads DuckDB.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from spark_jobs.runtime.errors import LedgerError, first_line
from spark_jobs.runtime.settings import ROOT
from spark_jobs.runtime.text import sql_text

_SECONDS = 120
_BLOCK_BYTES = 16384  # DuckDB's smallest: a catalogue holds no rows


def write(file: Path, script: str) -> None:
    """Write a new database that holds what an SQL script makes; raises LedgerError where that fails."""
    command = [sys.executable, "-m", __name__]
    request = json.dumps({"file": str(file), "script": script})
    try:
        done = subprocess.run(command, input=request, capture_output=True, text=True, cwd=ROOT, timeout=_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LedgerError(f"DuckDB wrote nothing: {error}") from error
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if line.strip()] or [f"it ended with exit code {done.returncode}"]
        raise LedgerError(f"DuckDB wrote nothing: {said[-1]}")


def connect(database: str | Path = ":memory:", *, read_only: bool = False) -> Any:
    """A connection (duckdb.DuckDBPyConnection) with the Delta extension, which comes from its package; times are UTC."""
    import duckdb
    import duckdb_extension_delta

    [extension] = (Path(folder) / f"extensions/v{duckdb.__version__}/delta.duckdb_extension" for folder in duckdb_extension_delta.__path__)
    connection = duckdb.connect(str(database), read_only=read_only, config={"autoinstall_known_extensions": "false"})
    connection.load_extension(str(extension))
    connection.execute("set timezone = 'UTC'")
    return connection


def _write(file: str, script: str) -> None:
    with connect() as connection:
        connection.execute("set threads = 1")
        connection.execute(f"attach {sql_text(file)} as catalogue (block_size {_BLOCK_BYTES})")
        connection.execute("use catalogue")
        connection.execute(script)
        connection.execute("use memory")
        connection.execute("detach catalogue")  # writes all into the one file


if __name__ == "__main__":
    os.umask(0o077)
    try:
        _write(**json.load(sys.stdin))
    except Exception as error:
        raise SystemExit(first_line(error)) from error
