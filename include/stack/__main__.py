"""`python -m include.stack up|down|status`: the embedded services of a LEDGER_HOME."""

import argparse
import sys

from include.stack.lifecycle import down, status, up
from spark_jobs.runtime.command import run_command


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns the exit code. What goes wrong is one line on standard error."""
    parser = argparse.ArgumentParser(prog="python -m include.stack", description=__doc__)
    parser.add_argument("command", choices=("up", "down", "status"))
    parser.add_argument(
        "--with",
        choices=("prometheus", "cluster"),
        action="append",
        default=[],
        help="up: start the exporter of metrics, Prometheus and its alertmanager, or Spark's master and workers, too",
    )
    options = vars(parser.parse_args(arguments))

    def command() -> None:
        if options["command"] == "up":
            up(report=_say, with_prometheus="prometheus" in options["with"], with_cluster="cluster" in options["with"])
        elif options["command"] == "down":
            down(report=_say)
        else:
            for name, value in status().items():
                _say(f"{name}={value}")

    undone = "; what it had started is stopped" if options["command"] == "up" else ""
    return run_command(options["command"], command, f"interrupted{undone}", cleans_up=True)


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
