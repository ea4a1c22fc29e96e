"""`python -m include.stack up|down|status`: the embedded Kafka, Postgres and Airflow of a LEDGER_HOME."""

import argparse
import signal
import sys

from include.stack.lifecycle import down, status, up
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.private import keep_files_private

INTERRUPTED = 130


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns the exit code. What goes wrong is one line on standard error."""
    parser = argparse.ArgumentParser(prog="python -m include.stack", description=__doc__)
    parser.add_argument("command", choices=("up", "down", "status"))
    parser.add_argument("--with", choices=("prometheus",), help="up: start the exporter of metrics, Prometheus and its alertmanager, too")
    options = vars(parser.parse_args(arguments))
    command = options["command"]
    keep_files_private()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # clean up on TERM as on Ctrl-C
    try:
        if command == "up":
            up(report=_say, with_prometheus=options["with"] == "prometheus")
        elif command == "down":
            down(report=_say)
        else:
            for name, value in status().items():
                _say(f"{name}={value}")
    except LedgerError as error:
        print(f"{command}: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print(f"{command}: interrupted" + ("; what it had started is stopped" if command == "up" else ""), file=sys.stderr)
        return INTERRUPTED
    return 0


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
