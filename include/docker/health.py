"""Is a service of docker-compose.yaml, or a pod of include/kubernetes/, healthy? Exit 0 when it is, 1 with one line when it is not.

`http URL`: the URL answers. `airflow URL PART`: Airflow's own health page calls that part healthy.
`kafka HOST:PORT`: the broker answers. `heartbeat JOB`: the application that the job started beats and gets on.
"""

import json
import sys
import time
import urllib.request
from collections.abc import Callable

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from spark_jobs.runtime.settings import read_settings
from spark_jobs.service import heartbeat
from spark_jobs.service.services import SERVICES

SECONDS = 5


def check_http(url: str) -> None:
    """Raises OSError unless the URL answers with a success."""
    urllib.request.urlopen(url, timeout=SECONDS).close()


def check_airflow(url: str, part: str) -> None:
    """Raises OSError unless the health page at the URL calls the part (scheduler, triggerer, dag_processor) healthy."""
    with urllib.request.urlopen(url, timeout=SECONDS) as answer:
        status = json.load(answer)[part]["status"]
    if status != "healthy":
        raise OSError(f"found {part} {status!r}, expected 'healthy'")


def check_kafka(bootstrap: str) -> None:
    """Raises KafkaException unless the broker names its topics."""
    AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics(timeout=SECONDS)


def check_heartbeat(job: str) -> None:
    """Raises OSError where a supervisor would replace the application."""
    beat = heartbeat.read_one(read_settings(), SERVICES[job], job)
    if beat is None or (wrong := beat.what_is_wrong(time.time())):
        raise OSError(f"found {job} that {wrong if beat else 'never ran'}, expected one that gets on")


CHECKS: dict[str, Callable[..., None]] = {"http": check_http, "airflow": check_airflow, "kafka": check_kafka, "heartbeat": check_heartbeat}


def main(arguments: list[str]) -> int:
    """Run the check that the first argument names on the others."""
    try:
        CHECKS[arguments[0]](*arguments[1:])
    except (OSError, KafkaException) as error:
        print(f"not healthy: {' '.join(arguments)}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
