"""Stop what runs for a home, in the order that loses least."""

import time
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

import psutil

from include.stack import cluster, kafka, postgres, prometheus, s3
from include.stack.processes import find_all, find_part, stop, wait_for_end

SERVICES = {kafka.PART: "Kafka", postgres.PART: "Postgres", s3.PART: "S3", **dict.fromkeys(cluster.PARTS, "Spark's master and workers")}
DRIVERS_SECONDS = 20  # for a stream to finish its micro-batch


def stop_parts(home: Path, parts: Collection[str] | None, report: Callable[[str], None]) -> None:
    """Stop parts (None: all) with everything they started: metrics, Airflow, Spark drivers, then the rest, then the services."""
    begun, everything = time.monotonic(), find_all(home, parts)
    chosen = [part for part in SERVICES if parts is None or part in parts]
    services = {part: process for part in chosen if (process := find_part(home, part))}
    watching = [process for part in prometheus.PARTS if parts is None or part in parts if (process := find_part(home, part))]
    others = [
        process for process in everything if process not in (*services.values(), *watching) and not _is_below(process, services.values())
    ]
    spark = [process for process in others if _is_spark(process)]
    orchestration = [process for process in others if process not in spark]
    if watching:
        stop(watching, patience=10)
        report(f"stopped the metrics ({len(watching)} processes)")
    if orchestration:
        # A scheduler waits for its tasks and these for their drivers, so do not wait long: a kill is safe, they keep no data.
        stop(orchestration, patience=4)
        report(f"stopped Airflow ({len(orchestration)} processes)")
    if spark:
        _stop_drivers(spark)
        report(f"stopped Spark ({len(spark)} processes)")
    for part in services.keys() - {postgres.PART}:
        with suppress(psutil.Error):
            services[part].terminate()
    if parts is None or postgres.PART in parts:
        postgres.stop_gently(home)
    stop(services.values(), patience=30)
    if s3.PART in services:
        s3.remove_sockets(home)
    for name in dict.fromkeys(SERVICES[part] for part in services):
        report(f"stopped {name}")
    left = find_all(home, parts)
    if left:
        stop(left, patience=3)
        report(f"stopped {len(left)} more processes")
    if not everything and not left:
        report(f"nothing runs for {home}")
    else:
        report(f"all of {home} is stopped ({time.monotonic() - begun:.1f} s)")


def _stop_drivers(spark: list[psutil.Process]) -> None:
    """Ask the Python drivers alone to end: a JVM that ends first would break the micro-batch in their hands."""
    drivers = [process for process in spark if _is_python_driver(process)]
    for process in drivers:
        try:
            process.terminate()
        except psutil.Error:
            continue
    if drivers:
        wait_for_end(spark, DRIVERS_SECONDS)
    stop(spark, patience=5)


def _is_spark(process: psutil.Process) -> bool:
    """Whether this is a Spark driver, its JVM or one of its workers."""
    try:
        return any(p.name() == "java" or _is_python_driver(p) for p in (process, *process.parents()))
    except psutil.Error:
        return False


def _is_python_driver(process: psutil.Process) -> bool:
    try:
        return process.name().startswith("python") and any("spark_jobs" in word for word in process.cmdline())
    except psutil.Error:
        return False


def _is_below(process: psutil.Process, ancestors: Collection[psutil.Process]) -> bool:
    try:
        return any(parent in ancestors for parent in process.parents())
    except psutil.Error:
        return False
