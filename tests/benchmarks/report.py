"""What `make bench` says of its runs: a table of medians, a table of ratios, and a plot, in characters and as SVG."""

import statistics
from collections.abc import Mapping
from typing import Any
from xml.sax.saxutils import escape

from tests.benchmarks.history import Measured, median

# A layer, the run that it is measured against, and the least ratio of rows a second that is aimed at. No figure passes or fails.
RATIOS = (
    ("bronze", "kafka-noop", 0.8),
    ("bronze", "kafka-delta", None),
    ("silver", "spark", 1.0),
    ("silver", "spark-parse", 0.5),
    ("silver", "flink-parse", None),
    ("silver", "flink-first", None),
    ("silver", "duckdb", None),
)
GOLD_AIM = 20_000  # rows a second
LAYERS = ("bronze", "silver", "gold")
_WIDTH = 40  # characters of the longest bar
_BAR, _LEFT, _ROW = 420, 110, 26  # of the SVG, in pixels
_COLOURS = {True: "#1f6f8b", False: "#b8b8b8"}  # a layer, a peer


def medians(found: Mapping[str, Any]) -> dict[str, Measured]:
    """The median of each measure, by name."""
    return {name: median([Measured(**run) for run in runs]) for name, runs in found["runs"].items()}


def speeds(found: Mapping[str, Any]) -> dict[str, float]:
    """Rows a second by name: the rows that a run reads, in its median time."""
    read = found.get("rows_read", {})
    return {name: read.get(name, found["rows"]) / middle.seconds for name, middle in medians(found).items()}


def report(found: Mapping[str, Any], before: Mapping[str, Any] | None) -> None:
    """Print the medians and ratios, and bars of the rows a second."""
    middles, speed, earlier = medians(found), speeds(found), medians(before) if before else {}
    print(f"\n{found['rows']:,} bronze rows; medians of {found['repeats']} runs in turns; {found['machine']}")
    print(f"{'':12} {'seconds':>8} {'least':>7} {'most':>7} {'cpu s':>7} {'rows':>10} {'rows/s':>9}", end="")
    print(f" {'peak MB':>8} {'read MB':>8} {'written':>8}" + (f" {'then s':>8} {'ratio':>6} {'cpu':>6}" if before else ""))
    for name, middle in middles.items():
        seconds = [run["seconds"] for run in found["runs"][name]]
        line = f"{name:12} {middle.seconds:8.1f} {min(seconds):7.1f} {max(seconds):7.1f} {middle.processor:7.1f}"
        line += f" {speed[name] * middle.seconds:10,.0f} {speed[name]:9,.0f}"
        line += f" {middle.memory / 1e6:8,.0f} {middle.bytes_read / 1e6:8,.0f} {middle.bytes_written / 1e6:8,.0f}"
        if then := earlier.get(name):
            line += f" {then.seconds:8.1f} {middle.seconds / then.seconds:6.2f} {middle.processor / then.processor:6.2f}"
        print(line)
    if lines := ratios(found):
        print("\n" + "\n".join(lines))
    print("\nrows a second")
    for name, rows in speed.items():
        print(f"{name:12} {'#' * max(1, round(_WIDTH * rows / max(speed.values())))} {rows:,.0f}")


def ratios(found: Mapping[str, Any]) -> list[str]:
    """Lines that compare the rows a second of each layer with those of its peers, as far as both were run, and with the aims."""
    speed = speeds(found)
    pairs = [(one, other, aim) for one, other, aim in RATIOS if one in speed and other in speed]
    lines = [f"{f'{one} to {other}':24} {speed[one] / speed[other]:6.2f}" + (f"  (aim: {aim})" if aim else "") for one, other, aim in pairs]
    if "gold" in speed:
        lines.append(f"{'gold, rows a second':24} {speed['gold']:6,.0f}  (aim: {GOLD_AIM:,})")
    return ["rows a second, ratios", *lines] if lines else []


def plot(found: Mapping[str, Any]) -> str:
    """An SVG with a bar of the rows a second for each name, and a line from its slowest to its quickest run."""
    speed, middles = speeds(found), medians(found)
    rows_read = {name: speed[name] * middles[name].seconds for name in speed}
    runs = {name: [rows_read[name] / run["seconds"] for run in found["runs"][name]] for name in speed}
    scale = _BAR / max((rate for rates in runs.values() for rate in rates), default=1.0)
    parts = []
    for place, (name, rate) in enumerate(speed.items()):
        top, middle = 40 + place * _ROW, 40 + place * _ROW + 8
        low, high = (_LEFT + scale * edge for edge in (min(runs[name]), max(runs[name])))
        parts += [
            f'<text x="{_LEFT - 8}" y="{top + 13}" text-anchor="end">{escape(name)}</text>',
            f'<rect x="{_LEFT}" y="{top}" width="{scale * rate:.1f}" height="16" fill="{_COLOURS[name in LAYERS]}"/>',
            f'<path d="M{low:.1f} {middle}H{high:.1f}M{low:.1f} {middle - 4}v8M{high:.1f} {middle - 4}v8" stroke="black"/>',
            f'<text x="{high + 8:.1f}" y="{top + 13}">{rate:,.0f}</text>',
        ]
    machine = found["machine"]
    heading = f"Rows a second, start included: {found['rows']:,} rows of bronze, medians of {found['repeats']} runs"
    below = (
        f"{machine['cores']} cores, {machine['memory'] / 2**30:.0f} GiB, load {statistics.mean(machine['load']):.1f}, {machine['system']}"
    )
    size = f'width="{_LEFT + _BAR + 100}" height="{70 + len(speed) * _ROW}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">',
            '<rect width="100%" height="100%" fill="white"/>',
            f'<text x="8" y="22" font-weight="bold">{escape(heading)}</text>',
            *parts,
            f'<text x="8" y="{58 + len(speed) * _ROW}" fill="#555">{escape(below)}</text>',
            "</svg>\n",
        ]
    )
