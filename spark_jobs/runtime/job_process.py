"""The command of a job, what its process must find in its environment, and what its exit code means. Knows no Airflow."""

import importlib.util
import sys
from pathlib import Path

from spark_jobs.runtime.errors import AuditDifference, GateClosed, LeaseHeld, SettingsError
from spark_jobs.runtime.settings import ROOT

COMMAND = (sys.executable, "-m", "spark_jobs.run")

# Another try of these would end the same: a person has to change something first.
FINAL_EXIT_CODES = (SettingsError.exit_code, GateClosed.exit_code, AuditDifference.exit_code)
MEANINGS = {
    SettingsError.exit_code: "unusable arguments or settings",
    GateClosed.exit_code: "gate closed",
    AuditDifference.exit_code: "audit difference",
    LeaseHeld.exit_code: "another process writes the table",
}


def job_environment() -> dict[str, str]:
    """What a job's process must find in its environment: this checkout, this interpreter, this environment's Spark."""
    environment = {
        "PYTHONPATH": str(ROOT),
        "PYTHONSAFEPATH": "1",  # spark-submit runs run.py by path: its folder must not come before the libraries
        "PYTHONUNBUFFERED": "1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    spark = importlib.util.find_spec("pyspark")  # looks it up without importing it
    if spark is not None and spark.origin is not None:
        environment["SPARK_HOME"] = str(Path(spark.origin).parent)
    return environment
