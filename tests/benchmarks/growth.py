"""How the cost of a cycle of silver, gold and the gates grows: with the history, new rows, cores and keys. A table and a plot for each.

    python -m tests.benchmarks.growth [--only NAME,...] [--values N,...] [--cycles N] [--folder DIR] [--to DIR]

    history    10,000 new rows, one in a hundred of them late by up to 8 days, behind 100,000 to 10 million
    late       the same, but the late ones are of any time of the history
    new        100 to 100,000 new rows behind a million
    cores      10,000 new rows behind a million, on one core and on two
    keys       10,000 new rows behind a million, of 1,000 to 100,000 customers

Each value is a run of `python -m tests.benchmarks.cycle` in a process of its own, in one warm session; figures are medians of its counted
cycles. An exponent is the slope of a cost over the value, both as logarithms (least squares): 0 where the cost does not grow. `--values` in
place of those named above, such as `--only history --values 100000000`, needs one name. `--folder` keeps the histories for the next time.
Files: growth.json, and growth-NAME.svg for each plot.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from spark_jobs.runtime.settings import ROOT
from tests.benchmarks.cycle import machine
from tests.benchmarks.history import exponent

MEASURES = {"seconds": "s", "cpu": "cpu s", "read": "MB read", "memory": "peak MB"}
JOBS = ("silver", "gold", "gates")
_COLOURS = ("#1f6f8b", "#d1495b", "#edae49", "#66a182", "#7b5ea7", "#5c4742", "#0d3b66", "#f4978e", "#8d99ae")
_SIDE, _LEFT, _TOP = 320, 60, 40  # of the SVG, in pixels
Figures = dict[str, dict[str, float]]  # silver, gold, gates: measure: figure


@dataclass(frozen=True)
class Axis:
    """What grows: in words, its values, and the arguments of a cycle that has one of them."""

    words: str
    values: tuple[int, ...]
    argument: str
    others: tuple[str, ...] = ()


AXES = {
    "history": Axis("rows of history", (100_000, 1_000_000, 10_000_000), "--history"),
    "late": Axis("rows of history, late rows of any day", (100_000, 1_000_000, 10_000_000), "--history", ("--late", "any")),
    "new": Axis("new rows", (100, 1_000, 10_000, 100_000), "--new"),
    "cores": Axis("cores", (1, 2), ""),
    "keys": Axis("customers", (1_000, 10_000, 100_000), "--customers"),
}


def main() -> None:
    """Measure, print the tables, write the plots and the JSON."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.growth")
    parser.add_argument("--only", default=",".join(AXES), help="some of: %(default)s")
    parser.add_argument("--values", help="other values of what grows, with commas between them")
    parser.add_argument("--cycles", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where the histories stay")
    parser.add_argument(
        "--to", type=Path, default=ROOT / "artifacts", help="where to write growth.json and the plots (default: %(default)s)"
    )
    options = parser.parse_args()
    names = options.only.split(",")
    if unknown := [name for name in names if name not in AXES]:
        parser.error(f"--only: found {', '.join(unknown)}, expected some of {', '.join(AXES)}")
    if options.values and len(names) > 1:
        parser.error(f"--values: found {len(names)} names of what grows, expected one in --only")
    written: dict[str, Any] = {"machine": machine(), "cycles": options.cycles, "axes": {}}
    options.to.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        for name in names:
            values = tuple(map(int, options.values.split(","))) if options.values else AXES[name].values
            found = {value: run_cycle(AXES[name], value, options.cycles, options.folder or Path(temporary)) for value in values}
            print("\n".join(table(name, found)), flush=True)
            written["axes"][name] = {"values": found, "exponents": exponents(found)}
            (options.to / f"growth-{name}.svg").write_text(plot(name, found), encoding="utf-8")
            (options.to / "growth.json").write_text(json.dumps(written, indent=2) + "\n", encoding="utf-8")


def run_cycle(axis: Axis, value: int, cycles: int, folder: Path) -> Figures:
    """The medians of a warm cycle, in a process of its own. Raises SystemExit with what it wrote when it fails."""
    present = os.cpu_count() or 1
    cores = present if axis.argument else min(value, present)
    with tempfile.TemporaryDirectory() as temporary:
        file = Path(temporary) / "cycle.json"
        given = {"--history": "1000000", "--new": "10000", "--cycles": str(cycles), "--folder": str(folder), "--json": str(file)}
        given |= {axis.argument: str(value)} if axis.argument else {}
        words = [word for pair in given.items() for word in pair]
        command = ["taskset", "--cpu-list", f"0-{cores - 1}", sys.executable, "-m", "tests.benchmarks.cycle", *words, *axis.others]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(done.stdout + done.stderr)
        phases = json.loads(file.read_text(encoding="utf-8"))["phases"]
    found = {name.split()[0]: phase["all"] for name, phase in phases.items()}
    return {job: {measure: found[job][measure] / (1e6 if "MB" in unit else 1) for measure, unit in MEASURES.items()} for job in JOBS}


def exponents(found: Mapping[int, Figures]) -> Figures:
    """The exponent of each measure of each job; nothing for one value."""
    if len(found) < 2:
        return {job: {} for job in JOBS}
    return {job: {measure: exponent(list(found), [each[job][measure] for each in found.values()]) for measure in MEASURES} for job in JOBS}


def table(name: str, found: Mapping[int, Figures]) -> list[str]:
    """The lines of a table: a row for each value, and one of the exponents."""
    lines = [f"\n{name:>12} " + " ".join(f"{job} {unit:>7}" for job in JOBS for unit in MEASURES.values())]
    for value, figures in found.items():
        lines.append(f"{value:>12,} " + " ".join(f"{figures[job][measure]:{len(job) + 8}.1f}" for job in JOBS for measure in MEASURES))
    grows = exponents(found)
    if all(grows.values()):
        lines.append(f"{'exponent':>12} " + " ".join(f"{grows[job][measure]:{len(job) + 8}.2f}" for job in JOBS for measure in MEASURES))
    return lines


def plot(name: str, found: Mapping[int, Figures]) -> str:
    """An SVG with two logarithmic axes: for each job its processor time, bytes read and peak memory, as multiples of the first value's."""
    drawn = [(job, measure) for measure in ("cpu", "read", "memory") for job in JOBS]
    lines = [[each[job][measure] / next(iter(found.values()))[job][measure] for each in found.values()] for job, measure in drawn]
    grows = exponents(found)
    low = min(0.5, *(min(line) for line in lines))
    high = max(2.0, *(max(line) for line in lines))
    first, last = math.log(min(found)), math.log(max(found)) if len(found) > 1 else math.log(min(found)) + 1

    def across(value: float) -> float:
        return _LEFT + _SIDE * (math.log(value) - first) / (last - first)

    def up(ratio: float) -> float:
        return _TOP + _SIDE * (1 - math.log(ratio / low) / math.log(high / low))

    bottom, heading = _TOP + _SIDE, f"Cost of a warm cycle by {AXES[name].words}, as a multiple of the first"
    parts = [f'<path d="M{_LEFT} {_TOP}V{bottom}H{_LEFT + _SIDE}" fill="none" stroke="black"/>']
    for value in found:
        parts.append(f'<text x="{across(value):.1f}" y="{bottom + 16}" text-anchor="middle">{value:,}</text>')
    for ratio in (low, 1.0, high):
        parts.append(f'<text x="{_LEFT - 6}" y="{up(ratio) + 4:.1f}" text-anchor="end">{ratio:.1f}</text>')
    for place, ((job, measure), ratios, colour) in enumerate(zip(drawn, lines, _COLOURS, strict=True)):
        points = " ".join(f"{across(value):.1f},{up(ratio):.1f}" for value, ratio in zip(found, ratios, strict=True))
        key, label = _TOP + 16 + 18 * place, f"{job}, {MEASURES[measure]}: exponent {grows[job].get(measure, 0.0):.2f}"
        parts += [
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>',
            f'<text x="{_LEFT + _SIDE + 50}" y="{key}" fill="{colour}">{escape(label)}</text>',
        ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LEFT + _SIDE + 270}" height="{bottom + 40}" font-family="sans-serif" '
            'font-size="12">',
            '<rect width="100%" height="100%" fill="white"/>',
            f'<text x="8" y="22" font-weight="bold">{escape(heading)}</text>',
            *parts,
            "</svg>\n",
        ]
    )


if __name__ == "__main__":
    main()
