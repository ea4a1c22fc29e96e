"""Maintenance of bronze while ingestion runs: a job requests it, and the application that owns the tables does it.

Two JVMs must not write one table, and ingestion never stops. So a request is a document, which the application
looks for now and then (`Maintenance`); it works in a thread of its own, one file at a time, and answers with a document for each table. A
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
from spark_jobs.runtime import documents
from spark_jobs.runtime.settings import Settings

log = logging.getLogger(__name__)

_FINISH_SECONDS = 20.0


@dataclass(frozen=True)
class Request:
    """What is asked for: the maintenance of some tables, by their names. It counts until `expires_at` (ISO 8601)."""

    id: str
    who: str
    asked_at: str
    expires_at: str
    tables: tuple[str, ...]


def ask(settings: Settings, tables: Iterable[Table], who: str, now: datetime, wait_seconds: float) -> Request:
    """Put a request for some tables, in place of any that was there. The caller takes its answers, and withdraws it.

    Answers to earlier ones are removed: who asked was killed before it could take them.
    """
    for answer in _folder(settings).glob("maintenance.*.*.json"):
        answer.unlink(missing_ok=True)
    expires = now + timedelta(seconds=wait_seconds)
    names = tuple(table.name for table in tables)
    request = Request(uuid.uuid4().hex[:12], who, now.isoformat(), expires.isoformat(), names)
    documents.write(settings, _request_file(settings), json.dumps(asdict(request)))
    return request


def answers(settings: Settings, request: Request) -> dict[str, Report]:
    """What was answered so far, by table."""
    files = {name: _answer_file(settings, request.id, name) for name in request.tables}
    return {name: Report.of(facts) for name, file in files.items() if (facts := _find(settings, file)) is not None}


def withdraw(settings: Settings, request: Request) -> None:
    """Take a request back, with its answers."""
    present = read_request(settings)
    if present and present.id == request.id:
        documents.remove(settings, _request_file(settings))
    for name in request.tables:
        documents.remove(settings, _answer_file(settings, request.id, name))


def read_request(settings: Settings) -> Request | None:
    """The open request, if any; one that cannot be read is none."""
    try:
        facts = _find(settings, _request_file(settings))
        return Request(**(facts | {"tables": tuple(facts["tables"])})) if facts is not None else None
    except (OSError, documents.NoAnswer, ValueError, TypeError, KeyError) as error:
        log.warning("the request %s cannot be read, so it is not served: %s", _request_file(settings), error)
        return None


class Maintenance:
    """The maintenance of the tables that this process owns, for as long as its queries run, in a thread of its own.

    Whatever goes wrong is logged and answered, and never raised.
    """

    def __init__(self, spark: SparkSession, settings: Settings, tables: Iterable[Table]) -> None:
        self._spark, self._settings, self._tables = spark, settings, tuple(tables)
        self._thread: threading.Thread | None = None
        self._ending = threading.Event()

    def serve(self) -> None:
        """Start what is asked for of these tables, unless something is under way; returns at once. Call it about once a second."""
        if self._thread and self._thread.is_alive():
            return
        request = read_request(self._settings)
        if request is None or datetime.fromisoformat(request.expires_at) <= table_maintenance.utc_now():
            return
        asked = [table for table in self._tables if table.name in request.tables]
        if waiting := [table for table in asked if _find(self._settings, _answer_file(self._settings, request.id, table.name)) is None]:
            self._thread = threading.Thread(target=self._work, args=(request, waiting), name="maintenance", daemon=True)
            self._thread.start()

    def finish(self) -> None:
        """Finish the table under way, if that takes not too long, and begin no other: the next application does the rest."""
        if self._thread and self._thread.is_alive():
            log.info("waiting for the maintenance under way")
            self._ending.set()
            self._thread.join(_FINISH_SECONDS)

    def _work(self, request: Request, tables: Iterable[Table]) -> None:
        for table in tables:
            if self._ending.is_set():
                return
            if (present := read_request(self._settings)) is None or present.id != request.id:
                log.info("maintenance of %s: the request of %s was withdrawn", table.name, request.who)
                return
            try:
                report = table_maintenance.maintain(self._settings, table, lambda: self._spark, table_maintenance.utc_now())
                log.info("maintenance for %s: %s", request.who, report)
            except Exception as error:
                log.info("where maintenance failed:", exc_info=True)
                report = Report.of_failure(table, error)
                log.error("%s", report)
            try:
                documents.write(self._settings, _answer_file(self._settings, request.id, table.name), json.dumps(asdict(report)))
            except (OSError, documents.NoAnswer) as error:
                log.error("the answer about %s cannot be written: %s", table.name, error)


def _folder(settings: Settings) -> Path:
    return settings.run_folder / "bronze"


def _request_file(settings: Settings) -> Path:
    return _folder(settings) / "maintenance.json"


def _answer_file(settings: Settings, number: str, table: str) -> Path:
    return _folder(settings) / f"maintenance.{number}.{table}.json"


def _find(settings: Settings, file: Path) -> dict[str, Any] | None:
    try:
        return dict(json.loads(documents.read(settings, file).text))
    except FileNotFoundError:
        return None
