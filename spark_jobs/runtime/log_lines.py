"""The lines of a job's log: as human-readable text, or as JSON for a log store; both masked."""

import json
import logging
import re
import time
from typing import Any

from spark_jobs.runtime.masking import mask_error

_TIME = "%Y-%m-%dT%H:%M:%S"
_ERROR = re.compile(r"[0-9T:-]{19}Z (?:ERROR|CRITICAL) (.+)")  # Spark's own lines have milliseconds
_TABLE = re.compile(r"\b(?:bronze|silver|gold|control)\.[a-z][a-z0-9_]*")
_BATCH = re.compile(r"\bbatch (\d+)\b")


class TextFormatter(logging.Formatter):
    """Formats a record as `2026-01-01T00:00:00Z LEVEL message`, its stack included, and masks the whole."""

    def __init__(self) -> None:
        super().__init__("%(asctime)sZ %(levelname)s %(message)s", _TIME)
        self.converter = time.gmtime

    def format(self, record: logging.LogRecord) -> str:
        """The line or lines to write."""
        return mask_error(super().format(record))


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON, masked.

    `time` (UTC), `level`, `logger`, `message`, the `job` and the `run_id` always; `table` and `batch` where the message names one, the
    first of them; `stack` of an error that was not foreseen.
    """

    def __init__(self, job: str, run_id: str) -> None:
        super().__init__(datefmt=_TIME)
        self.converter = time.gmtime
        self._job, self._run_id = job, run_id

    def format(self, record: logging.LogRecord) -> str:
        """The line to write."""
        message = mask_error(record.getMessage())
        line: dict[str, Any] = {
            "time": f"{self.formatTime(record, _TIME)}.{record.msecs:03.0f}Z",
            "level": record.levelname,
            "logger": record.name,
            "job": self._job,
            "run_id": self._run_id,
            "message": message,
        }
        if table := _TABLE.search(message):
            line["table"] = table[0]
        if batch := _BATCH.search(message):
            line["batch"] = int(batch[1])
        if record.exc_info:
            line["stack"] = mask_error(self.formatException(record.exc_info))
        return json.dumps(line, ensure_ascii=False)


def error_line(output: str) -> str:
    """The last error that the job itself logged, without time and level; the last line where there is none."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [message for line in lines if (message := _message_of_error(line))]
    return (errors or lines or ["no output"])[-1]


def _message_of_error(line: str) -> str | None:
    if found := _ERROR.fullmatch(line):
        return found[1]
    if not line.startswith('{"time": '):
        return None
    try:
        fields = json.loads(line)
    except ValueError:  # the end of a line that was cut
        return None
    return str(fields["message"]) if fields.get("level") in ("ERROR", "CRITICAL") else None
