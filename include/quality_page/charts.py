"""The charts, drawn by Plotly: its figures as JSON here, its script in the browser."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from include.quality_page.measures import Line, Measures

_UNITS = ((345_600, 86_400, "days"), (7_200, 3_600, "hours"), (300, 60, "minutes"), (0, 1, "seconds"))  # from, one is, name


@dataclass(frozen=True)
class Chart:
    """A chart: what it says in a sentence, and its figure as JSON; no figure where there is nothing to draw."""

    title: str
    says: str
    figure: str | None


def draw(measures: Measures) -> list[Chart]:
    """All charts of the page."""
    late_unit, late_seconds = _unit(measures.lateness)
    unit, seconds = _unit(measures.freshness)
    lateness, ages = _scaled(measures.lateness, late_seconds), _scaled(measures.freshness, seconds)
    return [
        _chart("Volume", "Rows that silver took from bronze, run by run.", "rows", measures.volume),
        _chart("Quarantine by rule", "Rows that broke a rule, in percent of the run's rows.", "%", measures.quarantine_share),
        _chart(
            "Lateness", "Transactions behind the watermark: the latest of a run, and their share.", late_unit, lateness, measures.late_share
        ),
        _chart("Freshness", "How old the newest transaction was when silver had it, and when a release showed it.", unit, ages),
    ]


def script() -> Path:
    """Plotly's script, out of its package."""
    package = find_spec("plotly")
    if package is None or package.origin is None:
        raise FileNotFoundError("found no package plotly, expected it in this environment: run make setup")
    return Path(package.origin).parent / "package_data" / "plotly.min.js"


def _chart(title: str, says: str, unit: str, lines: Sequence[Line], shares: Sequence[Line] = ()) -> Chart:
    """Lines in a unit; `shares` are drawn against percents on the right."""
    drawn = [line for line in lines if line.times]
    return Chart(title, says, _figure(unit, drawn, shares) if drawn else None)


def _figure(unit: str, lines: Sequence[Line], shares: Sequence[Line]) -> str:
    from plotly.io import to_json  # Airflow starts without it

    axes = (*((line, "y") for line in lines), *((line, "y2") for line in shares))
    traces = [
        {"type": "scatter", "mode": "lines+markers", "name": line.name, "x": line.times, "y": line.values, "yaxis": axis}
        for line, axis in axes
    ]
    layout = {
        "height": 300,
        "margin": {"l": 60, "r": 60, "t": 10, "b": 40},
        "showlegend": True,
        "legend": {"orientation": "h", "y": -0.2},
        "xaxis": {"type": "date"},
        "yaxis": {"title": {"text": unit}, "rangemode": "tozero"},
        "yaxis2": {"title": {"text": "%"}, "rangemode": "tozero", "overlaying": "y", "side": "right", "showgrid": False},
    }
    return str(to_json({"data": traces, "layout": layout}, validate=False))


def _unit(lines: Sequence[Line]) -> tuple[str, int]:
    """A unit of time in which the longest value reads well, and its seconds."""
    longest = max((value for line in lines for value in line.values), default=0)
    return next((name, seconds) for least, seconds, name in _UNITS if longest >= least or not least)


def _scaled(lines: Sequence[Line], seconds: int) -> list[Line]:
    return [Line(line.name, line.times, [value / seconds for value in line.values]) for line in lines]
