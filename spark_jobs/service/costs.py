"""What the batches of a streaming query cost: rows, seconds by phase, state, and rows dropped. Out of Spark's own progress."""

import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from spark_jobs.runtime.errors import first_line

log = logging.getLogger(__name__)

_ALL = "triggerExecution"  # of a batch, all phases together
_WORK = "addBatch"  # a phase that a trigger without a batch lacks


class Costs:
    """Counts since the application started, and the last batch's rates and state. `dropped` are rows behind the watermark."""

    def __init__(self) -> None:
        self._seen = ("", -1)  # run and number of the last batch that was counted
        self.batches = self.dropped = self._rows = 0
        self._began = 0.0  # when the last batch did
        self._seconds: dict[str, float] = {}
        self._last: dict[str, float] = {}

    def follow(self, query: StreamingQuery, last: StreamingQueryProgress, brought: Mapping[int, int] | None = None) -> None:
        """Count what ended since the last look. It never raises: a batch whose progress cannot be read is left out.

        `brought` has the rows of batches by number, for a query whose rows Spark does not read itself.
        """
        try:
            run = str(last.runId)
            if not is_of_batch(last) or self._seen == (run, last.batchId):
                return
            counted = self._seen[1] if self._seen[0] == run else -1
            ended = [last] if last.batchId == counted + 1 else query.recentProgress
            for progress in ended:
                if is_of_batch(progress) and progress.batchId > counted:
                    self._count(progress, None if brought is None else brought.get(progress.batchId, 0))
            self._seen = (run, last.batchId)
        except Exception as error:
            log.warning("the costs of a batch are not counted: %s: %s", type(error).__name__, first_line(error))
            log.debug("", exc_info=True)

    def facts(self) -> dict[str, Any]:
        """What the heartbeat shows of it; nothing before the first batch."""
        if not self.batches:
            return {}
        seconds = {phase: round(seconds, 3) for phase, seconds in self._seconds.items()}
        return {"costs": {"batches": self.batches, "rows": self._rows, "seconds": seconds, **self._last}}

    def _count(self, progress: StreamingQueryProgress, brought: int | None) -> None:
        self.batches += 1
        rows = progress.numInputRows if brought is None else brought
        self._rows += rows
        for phase, milliseconds in progress.durationMs.items():
            if phase != _ALL:
                self._seconds[phase] = self._seconds.get(phase, 0.0) + milliseconds / 1000
        began, seconds = datetime.fromisoformat(progress.timestamp).timestamp(), progress.durationMs.get(_ALL, 0) / 1000
        self._last = {"batch_seconds": seconds, "processing_rate": _rate(rows, seconds), "input_rate": _rate(rows, began - self._began)}
        self._began = began
        if progress.stateOperators:
            self._last["state_rows"] = sum(operator.numRowsTotal for operator in progress.stateOperators)
            self.dropped += sum(operator.numRowsDroppedByWatermark for operator in progress.stateOperators)
            self._last["state_bytes"] = sum(operator.memoryUsedBytes for operator in progress.stateOperators)


def is_of_batch(progress: StreamingQueryProgress) -> bool:
    """Whether it tells of a batch that ended. Spark numbers a report without one as the batch to come."""
    return _WORK in progress.durationMs


def _rate(rows: int, seconds: float) -> float:
    return round(rows / seconds, 1) if seconds > 0 else 0.0
