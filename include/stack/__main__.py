"""`python -m include.stack up|down|status`: the embedded services of a LEDGER_HOME."""

import argparse
import sys

from include.stack.lifecycle import down, status, up
from spark_jobs.runtime.command import run_command

OPTIONAL = ("prometheus", "cluster", "s3")


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns the exit code. What goes wrong is one line on standard error."""
    parser = argparse.ArgumentParser(prog="python -m include.stack", description=__doc__)
    parser.add_argument("command", choices=("up", "down", "status"))
    parser.add_argument(
        "--with",
        type=_parts,
        action="append",
        default=[],
        metavar="PART[,PART]",
        help="up: start, too, prometheus (the exporter of metrics, Prometheus, its alertmanager), cluster (Spark's master and workers), "
        "or s3 (an S3 server, where the tables are kept from then on)",
    )
    options = vars(parser.parse_args(arguments))
    chosen = {part for parts in options["with"] for part in parts}

    def command() -> None:
        if options["command"] == "up":
            up(report=_say, with_prometheus="prometheus" in chosen, with_cluster="cluster" in chosen, with_s3="s3" in chosen)
        elif options["command"] == "down":
            down(report=_say)
        else:
            for name, value in status().items():
                _say(f"{name}={value}")

    undone = "; what it had started is stopped" if options["command"] == "up" else ""
    return run_command(options["command"], command, f"interrupted{undone}", cleans_up=True)


def _parts(text: str) -> tuple[str, ...]:
    """The optional parts that a text names, separated by commas or blanks."""
    parts = tuple(text.replace(",", " ").split())
    if unknown := [part for part in parts if part not in OPTIONAL]:
        raise argparse.ArgumentTypeError(f"found {unknown[0]!r}, expected some of {', '.join(OPTIONAL)}")
    return parts


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
