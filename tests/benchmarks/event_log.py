"""What a piece of work in Spark consisted of, by the session's event log: SQL executions, jobs, stages, and the time in which jobs ran."""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Interval = tuple[float, float]  # in seconds since the epoch
_SQL = "org.apache.spark.sql.execution.ui.SparkListenerSQLExecution"


@dataclass
class Part:
    """The executions of one description, and what they did."""

    executions: int = 0
    jobs: int = 0
    stages: int = 0
    task_seconds: float = 0.0
    spans: list[Interval] = field(default_factory=list)
    job_spans: list[Interval] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """From the first execution's start to the last one's end."""
        return max((end for _, end in self.spans), default=0.0) - min((start for start, _ in self.spans), default=0.0)

    @property
    def busy_seconds(self) -> float:
        """In which an execution ran."""
        return covered(self.spans)

    @property
    def job_seconds(self) -> float:
        """In which a job ran."""
        return covered(self.job_spans)


def conf(folder: Path) -> dict[str, str]:
    """The settings of a session that keeps its event log in a folder, as one file."""
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": folder.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        "spark.sql.ui.explainMode": "simple",
    }


def parts(folder: Path, window: Interval) -> dict[str, Part]:
    """What began within a window of time, by the description of its executions (of nested ones: the outermost)."""
    found: dict[str, Part] = {}
    names: dict[int, str] = {}
    starts: dict[int, float] = {}
    jobs: dict[int, tuple[str, float]] = {}
    stages: dict[int, str] = {}
    for event in _events(folder):
        kind = event["Event"]
        if kind == f"{_SQL}Start" and window[0] <= (at := event["time"] / 1000) < window[1]:
            names[event["executionId"]] = names.get(event.get("rootExecutionId") or -1) or _first_line(event["description"])
            starts[event["executionId"]] = at
            found.setdefault(names[event["executionId"]], Part()).executions += 1
        elif kind == f"{_SQL}End" and event["executionId"] in starts:
            found[names[event["executionId"]]].spans.append((starts[event["executionId"]], event["time"] / 1000))
        elif kind == "SparkListenerJobStart" and window[0] <= (at := event["Submission Time"] / 1000) < window[1]:
            properties = event.get("Properties") or {}
            execution = int(properties.get("spark.sql.execution.id") or -1)
            name = names.get(execution) or _first_line(properties.get("spark.job.description") or "without SQL")
            part = found.setdefault(name, Part())
            part.jobs += 1
            jobs[event["Job ID"]] = (name, at)
            stages |= dict.fromkeys(event["Stage IDs"], name)
        elif kind == "SparkListenerJobEnd" and event["Job ID"] in jobs:
            name, at = jobs[event["Job ID"]]
            found[name].job_spans.append((at, event["Completion Time"] / 1000))
        elif kind == "SparkListenerStageCompleted" and event["Stage Info"]["Stage ID"] in stages:
            found[stages[event["Stage Info"]["Stage ID"]]].stages += 1
        elif kind == "SparkListenerTaskEnd" and event["Stage ID"] in stages:
            info = event["Task Info"]
            found[stages[event["Stage ID"]]].task_seconds += (info["Finish Time"] - info["Launch Time"]) / 1000
    return found


def together(found: Iterable[Part]) -> Part:
    """The sum of some parts; what ran side by side counts once in its seconds."""
    whole = Part()
    for part in found:
        whole.executions += part.executions
        whole.jobs += part.jobs
        whole.stages += part.stages
        whole.task_seconds += part.task_seconds
        whole.spans += part.spans
        whole.job_spans += part.job_spans
    return whole


def covered(spans: Iterable[Interval]) -> float:
    """How many seconds lie in at least one of some intervals."""
    seconds, reached = 0.0, float("-inf")
    for start, end in sorted(spans):
        seconds += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return seconds


def _events(folder: Path) -> Iterator[dict[str, Any]]:
    (file,) = folder.iterdir()
    with file.open(encoding="utf-8") as lines:
        for line in lines:
            if line.endswith("\n"):  # else it is being written
                yield json.loads(line)


def _first_line(text: str) -> str:
    """Of a description; Delta's own queries (`Delta: gold.x: Filtering files for query`) are those of the work that asked for them."""
    line = text.strip().splitlines()[0] if text.strip() else "without description"
    return re.sub(r"^(Delta: )+|: (Filtering files for query|Compute snapshot for version).*", "", line)[:60]
