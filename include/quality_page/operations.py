"""The page Operations: the panels of the dashboard in include/grafana, drawn of what Prometheus has kept."""

import json
import time
from dataclasses import dataclass
from typing import Any

import httpx

from include.quality_page.words import NOTHING, age, number, size
from spark_jobs.runtime.errors import SettingsError
from spark_jobs.runtime.settings import ROOT, Settings, read_endpoints

DASHBOARD = ROOT / "include/grafana/ledger.json"
COLOURS = ("one", "two", "three")
MOST_LINES = 9  # of a panel; the others are counted
_POINTS = 180
_PATIENCE = httpx.Timeout(5.0)


@dataclass(frozen=True)
class Line:
    """A series: its name, its newest value in words, and its points, in percent of the panel, as SVG takes them."""

    name: str
    newest: str
    colour: str
    dash: str
    points: str


@dataclass(frozen=True)
class Panel:
    """A panel: what it shows, its lines, the value of its full height; `is_tile` where only the newest value counts."""

    title: str
    says: str
    is_tile: bool
    lines: tuple[Line, ...]
    most: str
    left_out: int


@dataclass(frozen=True)
class Section:
    """A question and its panels."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Answer:
    """What the page shows: where Prometheus listens (empty: it does not run), the panels, and what is wrong with its answers."""

    address: str
    sections: tuple[Section, ...] = ()
    wrong: str = ""


class NoPrometheus(Exception):
    """Prometheus does not answer, or not with what was asked."""


def ask_prometheus(settings: Settings, hours: int) -> Answer:
    """Every panel over the last hours, as far as the Prometheus of this home answers."""
    try:
        address = read_endpoints(settings.home).get("prometheus_url", "")
        return Answer(address, tuple(draw(address, hours)) if address else ())
    except NoPrometheus as error:
        return Answer(address, wrong=str(error))
    except SettingsError as error:
        return Answer("", wrong=str(error))


def draw(address: str, hours: int, now: float | None = None) -> list[Section]:
    """Every panel over the last hours, asked of the Prometheus at an address. Raises NoPrometheus, with what was found."""
    end = int(now or time.time())  # whole seconds: the last of the equal steps ends there
    found: list[tuple[str, list[Panel]]] = []
    with httpx.Client(base_url=address, timeout=_PATIENCE, trust_env=False) as client:
        for panel in json.loads(DASHBOARD.read_text())["panels"]:
            if panel["type"] == "row":
                found.append((panel["title"], []))
            else:
                found[-1][1].append(_panel(client, panel, end - hours * 3600, end))
    return [Section(title, tuple(panels)) for title, panels in found]


def words(value: float, unit: str) -> str:
    """A value in the unit of a panel."""
    if value != value:  # not a number: a share of nothing
        return NOTHING
    if unit == "s":
        return age(value) if value >= 1 else f"{1000 * value:.0f} ms"
    if unit == "bytes":
        return size(int(value))
    if unit == "percentunit":
        return f"{100 * value:.1f} %"
    return number(int(value) if value == int(value) or value >= 100 else value)


def _panel(client: httpx.Client, panel: dict[str, Any], start: int, end: int) -> Panel:
    series = [(target["legendFormat"], each) for target in panel["targets"] for each in _range(client, target["expr"], start, end)]
    unit = panel["fieldConfig"]["defaults"]["unit"]
    known = [[(at, value) for at, value in each["points"] if value == value] for _, each in series]
    most = max((value for points in known for _, value in points), default=0.0)
    lines = [
        Line(
            name=_name(legend, each["labels"]),
            newest=words(points[-1][1], unit) if points else NOTHING,
            colour=COLOURS[place % len(COLOURS)],
            dash=("", "6 3", "2 3")[place // len(COLOURS) % 3],
            points=" ".join(
                f"{100 * (at - start) / (end - start):.2f},{100 - 96 * max(0, value) / (most or 1):.2f}"
                for at, value in points * (1 + (len(points) == 1))  # a line of one point is a dot
            ),
        )
        for place, ((legend, each), points) in enumerate(zip(series, known, strict=True))
    ]
    left_out = max(0, len(lines) - MOST_LINES)
    return Panel(panel["title"], panel["description"], panel["type"] == "stat", tuple(lines[:MOST_LINES]), words(most, unit), left_out)


def _range(client: httpx.Client, expression: str, start: int, end: int) -> list[dict[str, Any]]:
    question: dict[str, str | int] = {"query": expression, "start": start, "end": end, "step": max(15, (end - start) // _POINTS)}
    try:
        answer = client.get("/api/v1/query_range", params=question).json()
        if answer["status"] != "success":
            raise NoPrometheus(f"it refuses {expression}: {answer.get('error')}")
        return [
            {"labels": each["metric"], "points": [(float(at), float(value)) for at, value in each["values"]]}
            for each in answer["data"]["result"]
        ]
    except (httpx.HTTPError, ValueError, KeyError) as error:
        raise NoPrometheus(f"{type(error).__name__}: {error}") from None


def _name(legend: str, labels: dict[str, str]) -> str:
    for label, value in labels.items():
        legend = legend.replace("{{" + label + "}}", value)
    return legend
