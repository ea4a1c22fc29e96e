"""`python -m include.metrics [--port N [--statsd-port N]]`: the metrics of a LEDGER_HOME, at /metrics on loopback.

Without a port, they are printed once.
"""

import argparse
import logging
import signal
import sys
import threading

from prometheus_client import generate_latest, start_http_server

from include.metrics.airflow import listen
from include.metrics.exporter import registry
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.settings import read_settings

HOST = "127.0.0.1"


def main(arguments: list[str] | None = None) -> int:
    """Serve until SIGTERM or Ctrl-C; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m include.metrics", description=__doc__)
    parser.add_argument("--port", type=int, help="where to listen on loopback; without it, print the series once and end")
    parser.add_argument("--statsd-port", type=int, help="where to receive on loopback what Airflow sends by StatsD")
    options = parser.parse_args(arguments)
    port = options.port
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        found = registry(read_settings(), listen(HOST, options.statsd_port) if options.statsd_port else None)
        if port is None:
            sys.stdout.write(generate_latest(found).decode())
            return 0
        server, serving = start_http_server(port, HOST, found)
    except (LedgerError, OSError) as error:
        print(f"metrics: {error}", file=sys.stderr)
        return error.exit_code if isinstance(error, LedgerError) else 1
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    print(f"metrics: http://{HOST}:{port}/metrics", flush=True)
    ended.wait()
    server.shutdown()
    serving.join()
    return 0


if __name__ == "__main__":
    sys.exit(main())
