"""Writing a database of DuckDB, in a process of its own: `python -m spark_jobs.releases.duckdb_file` with JSON on standard input.

A native library that hangs or crashes there takes no job with it, and no job loads DuckDB.
"""

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from spark_jobs.runtime.errors import LedgerError, first_line
from spark_jobs.runtime.settings import ROOT
from spark_jobs.runtime.storage import s3_access
from spark_jobs.runtime.text import sql_text

_SECONDS = 120
_BLOCK_BYTES = 16384  # DuckDB's smallest: a catalogue holds no rows


def write(file: Path, script: str, *, on_s3: bool = False) -> None:
    """Write a new database that holds what an SQL script makes, of tables in S3 where these are; raises LedgerError where that fails."""
    command = [sys.executable, "-m", __name__]
    request = json.dumps({"file": str(file), "script": script, "on_s3": on_s3})
    try:
        done = subprocess.run(command, input=request, capture_output=True, text=True, cwd=ROOT, timeout=_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LedgerError(f"DuckDB wrote nothing: {error}") from error
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if line.strip()] or [f"it ended with exit code {done.returncode}"]
        raise LedgerError(f"DuckDB wrote nothing: {said[-1]}")


def connect(database: str | Path = ":memory:", *, read_only: bool = False, on_s3: bool = False) -> Any:
    """A connection (duckdb.DuckDBPyConnection) with the Delta extension, which comes from its package; times are UTC.

    With `on_s3` it reads tables there, too, by the address and keys of the environment.
    """
    import duckdb

    connection = duckdb.connect(str(database), read_only=read_only, config={"autoinstall_known_extensions": "false"})
    for name in ("httpfs", "delta") if on_s3 else ("delta",):
        folders = import_module(f"duckdb_extension_{name}").__path__
        [extension] = (Path(folder) / f"extensions/v{duckdb.__version__}/{name}.duckdb_extension" for folder in folders)
        connection.load_extension(str(extension))
    if on_s3:
        words = ", ".join(f"{name} {sql_text(text)}" for name, text in _s3_secret().items())
        connection.execute(f"create secret (type s3, {words})")  # in memory only
    connection.execute("set timezone = 'UTC'")
    return connection


def _s3_secret() -> dict[str, str]:
    access = s3_access()
    address, names = (
        access.get("fs.s3a.endpoint"),
        {"key_id": "ACCESS_KEY_ID", "secret": "SECRET_ACCESS_KEY", "session_token": "SESSION_TOKEN"},
    )
    found = {name: os.environ[f"AWS_{of}"] for name, of in names.items() if f"AWS_{of}" in os.environ}
    if region := access.get("fs.s3a.endpoint.region"):
        found["region"] = region
    if address:
        scheme, _, host = address.partition("://")
        found |= {"endpoint": host.rstrip("/"), "url_style": "path", "use_ssl": str(scheme == "https").lower()}
    return found


def _write(file: str, script: str, on_s3: bool) -> None:
    with connect(on_s3=on_s3) as connection:
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
