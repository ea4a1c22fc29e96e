"""What a core carries, and how many of them a load needs, from two measurements of `make bench` with different numbers of rows.

    python -m tests.benchmarks.sizing SMALL.json LARGE.json [--rate ROWS_A_SECOND] [--history BYTES]

Two sizes tell a run's fixed part (starting, planning, commits) from what each row costs: cost = fixed + rows * each. The rows are those
of bronze. Cores = rate * processor time of a row, if they are used to the full; twice as many leave room for a stop's backlog. Rows of
history = bytes / what a row takes in all layers together, of the present versions only.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from spark_jobs.lake.tables import LAYERS
from tests.benchmarks.report import medians


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.sizing")
    parser.add_argument("small", type=Path)
    parser.add_argument("large", type=Path)
    parser.add_argument("--rate", type=float, default=1e6, help="rows a second (default: a million)")
    parser.add_argument("--history", type=float, default=10e12, help="bytes of all layers (default: 10 TB)")
    options = parser.parse_args()
    small, large = (json.loads(file.read_text(encoding="utf-8")) for file in (options.small, options.large))
    if not small["rows"] < large["rows"]:
        parser.error(f"found {small['rows']:,} and {large['rows']:,} rows, expected the smaller measurement first")
    print(f"{small['rows']:,} and {large['rows']:,} bronze rows; {large['machine']}\n")
    columns = f"{'fixed cpu s':>12} {'cpu us a row':>13} {'rows/s a core':>14} {'bytes a row':>12}"
    print(f"{'':8} {columns} {f'cores for {options.rate:,.0f}/s':>22}")
    total = 0.0
    for layer in LAYERS:
        fixed, each = costs(small, large, layer)
        stored = large["stored"][layer] / large["rows"]
        total += stored
        print(f"{layer:8} {fixed:12.1f} {each * 1e6:13.1f} {1 / each:14,.0f} {stored:12.1f} {options.rate * each:22,.0f}")
    rows = options.history / total
    days = rows / options.rate / 86400
    print(f"\n{options.history / 1e12:,.1f} TB are {rows:,.0f} rows of bronze in all layers: {days:,.2f} days at that rate")


def costs(small: dict[str, Any], large: dict[str, Any], layer: str) -> tuple[float, float]:
    """The processor seconds of a run without rows, and those of a row."""
    few, many = (medians(found)[layer].processor for found in (small, large))
    each = (many - few) / (large["rows"] - small["rows"])
    return few - each * small["rows"], each


if __name__ == "__main__":
    main()
