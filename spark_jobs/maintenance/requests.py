"""Maintenance of bronze while ingestion runs: a job requests it, and the application that owns the tables does it.

Two JVMs must not write one table, and ingestion never stops. So a request is a file under the checkpoints, which the application
looks for now and then (`serve`); it works in a thread of its own, one file at a time, and answers with a file for each table. A
request is valid until it is answered, withdrawn or expired, even if processes die meanwhile.
"""

import json
import logging
import threading
import uuid
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from spark_jobs.lake.tables import Table
from spark_jobs.maintenance import table_maintenance
from spark_jobs.maintenance.table_maintenance import Report
from spark_jobs.runtime.atomic_files import write_whole
from spark_jobs.runtime.errors import first_line
from spark_jobs.runtime.settings import Settings

log = logging.getLogger(__name__)

FINISH_SECONDS = 20.0
_working: dict[Path, threading.Thread] = {}  # by the folder of requests: a process has one at a time
_ending = threading.Event()


@dataclass(frozen=True)
class Request:
    """What is asked for: the maintenance of some tables, by their names. It counts until `expires_at` (ISO 8601)."""

    id: str
    who: str
    asked_at: str
    expires_at: str
    tables: tuple[str, ...]


@dataclass(frozen=True)
class Maintenance:
    """The maintenance of the tables that this process owns, for as long as its queries run."""

    spark: SparkSession
    settings: Settings
    tables: tuple[Table, ...]

    def serve(self) -> None:
        """`serve` for these tables."""
        serve(self.spark, self.settings, self.tables)

    def finish(self) -> None:
        """`finish` for these tables."""
        finish(self.settings)


def ask(settings: Settings, tables: Iterable[Table], who: str, now: datetime, wait_seconds: float) -> Request:
    """Put a request for some tables, in place of any that was there. The caller takes its answers, and withdraws it."""
    expires = now + timedelta(seconds=wait_seconds)
    names = tuple(table.name for table in tables)
    request = Request(uuid.uuid4().hex[:12], who, now.isoformat(), expires.isoformat(), names)
    write_whole(_request_file(settings), json.dumps(asdict(request)))
    return request


def answers(settings: Settings, request: Request) -> dict[str, Report]:
    """What was answered so far, by table."""
    files = {name: _answer_file(settings, request.id, name) for name in request.tables}
    return {name: Report.of(_read(file)) for name, file in files.items() if file.exists()}


def withdraw(settings: Settings, request: Request) -> None:
    """Take a request back, with its answers."""
    present = read_request(settings)
    if present and present.id == request.id:
        _request_file(settings).unlink(missing_ok=True)
    for name in request.tables:
        _answer_file(settings, request.id, name).unlink(missing_ok=True)


def read_request(settings: Settings) -> Request | None:
    """The open request, if any; one that cannot be read is none."""
    try:
        facts = _read(_request_file(settings))
        return Request(**(facts | {"tables": tuple(facts["tables"])}))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        log.warning("the request %s cannot be read, so it is not served: %s", _request_file(settings), error)
        return None


def serve(spark: SparkSession, settings: Settings, tables: Iterable[Table]) -> None:
    """Start what is asked for of these tables, which this process owns, in a thread of its own; returns at once.

    Call it about once a second. Whatever goes wrong is logged and answered, and never raised.
    """
    if not _request_file(settings).exists():  # nearly always
        return
    working = _working.get(_folder(settings))
    if working and working.is_alive():
        return
    request = read_request(settings)
    if request is None or datetime.fromisoformat(request.expires_at) <= table_maintenance.utc_now():
        return
    open_tables = [
        table for table in tables if table.name in request.tables and not _answer_file(settings, request.id, table.name).exists()
    ]
    if not open_tables:
        return
    thread = threading.Thread(target=_work, args=(spark, settings, request, open_tables), name="maintenance", daemon=True)
    _working[_folder(settings)] = thread
    thread.start()


def finish(settings: Settings, wait_seconds: float = FINISH_SECONDS) -> None:
    """Finish the table that is being maintained, if that takes not too long, and begin no other: the next application does the rest."""
    working = _working.pop(_folder(settings), None)
    if working and working.is_alive():
        log.info("waiting for the maintenance under way")
        _ending.set()
        working.join(wait_seconds)
        _ending.clear()


def _work(spark: SparkSession, settings: Settings, request: Request, tables: Iterable[Table]) -> None:
    for table in tables:
        if _ending.is_set():
            return
        if (present := read_request(settings)) is None or present.id != request.id:
            log.info("maintenance of %s: the request of %s was withdrawn", table.name, request.who)
            return
        try:
            report = table_maintenance.maintain(settings, table, lambda: spark, table_maintenance.utc_now())
            log.info("maintenance for %s: %s", request.who, report)
        except Exception as error:
            log.info("where maintenance failed:", exc_info=True)
            report = Report(table.name, error=f"maintenance failed: {type(error).__name__}: {first_line(error)}")
            log.error("%s", report)
        try:
            write_whole(_answer_file(settings, request.id, table.name), json.dumps(report.as_facts()))
        except OSError as error:
            log.error("the answer about %s cannot be written: %s", table.name, error)


def _folder(settings: Settings) -> Path:
    return settings.checkpoints / "bronze"


def _request_file(settings: Settings) -> Path:
    return _folder(settings) / "maintenance.json"


def _answer_file(settings: Settings, number: str, table: str) -> Path:
    return _folder(settings) / f"maintenance.{number}.{table}.json"


def _read(file: Path) -> dict[str, Any]:
    return dict(json.loads(file.read_text()))
