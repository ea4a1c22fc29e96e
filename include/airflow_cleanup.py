"""`python -m include.airflow_cleanup`: old runs out of Airflow's database, and the logs of their tasks off the disk.

A run stays for as long as commits of the tables do: LEDGER_RELEASE_DAYS and a day, at least 30 days. A DAG with an older run that has not
ended (the ingestion, a question that nobody has answered) is left alone until that run ends. Works beside a running Airflow, and with the
settings of the embedded one where the environment holds none.
"""

import logging
import os
import sys
from collections.abc import Collection
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from spark_jobs.errors import LedgerError
from spark_jobs.lifetimes import LEAST_LOG_DAYS, MARGIN_DAYS
from spark_jobs.settings import Settings, read_settings

log = logging.getLogger("ledger")

# Runs take with them what belongs to their tasks. Not `trigger` and `task_instance`: age says nothing of whether they are in use.
TABLES = ("dag_run", "job", "log", "asset_event", "import_error", "callback", "dag_version", "revoked_token")
DATABASE = "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"


def oldest(settings: Settings, now: datetime) -> datetime:
    """The moment before which runs and their logs go."""
    return now - timedelta(days=max(settings.release_days + MARGIN_DAYS, LEAST_LOG_DAYS))


def clean_database(before: datetime) -> list[str]:
    """Remove old rows from Airflow's database; returns the DAGs that were left alone, because an old run of theirs has not ended."""
    from airflow.models.dagrun import DagRun
    from airflow.utils.db_cleanup import config_dict, run_cleanup
    from airflow.utils.session import create_session
    from airflow.utils.state import State
    from sqlalchemy import select

    with create_session() as session:
        unfinished = select(DagRun.dag_id).where(DagRun.state.in_(State.unfinished_dr_states), DagRun.run_after < before).distinct()
        spared = sorted(session.scalars(unfinished))
    wanted = [*TABLES, *(["session"] if "session" in config_dict else [])]  # sessions of logins: where users are kept in the database
    run_cleanup(
        clean_before_timestamp=before,
        table_names=wanted,
        exclude_dag_ids=spared or None,
        skip_archive=True,
        confirm=False,
        error_on_cleanup_failure=True,
    )
    return spared


def remove_logs(folder: Path, before: datetime, spared: Collection[str] = ()) -> tuple[int, int]:
    """Remove log files last written before a moment, but those of some DAGs, and folders that this empties; returns files and bytes."""
    removed: list[int] = []
    kept = {f"dag_id={dag_id}" for dag_id in spared}
    for file in [file for file in folder.rglob("*") if file.is_file() or file.is_symlink()]:
        stat = file.lstat()
        if stat.st_mtime >= before.timestamp() or kept & set(file.relative_to(folder).parts):
            continue
        file.unlink(missing_ok=True)
        removed.append(stat.st_size)
        for place in file.relative_to(folder).parents[:-1]:  # a task that starts now makes its folder again
            with suppress(OSError):
                (folder / place).rmdir()
    return len(removed), sum(removed)


def use_environment(settings: Settings) -> None:
    """Bring this process to Airflow's settings: a task's own, which lack the database, or those of the embedded Airflow that runs."""
    from include.stack.processes import environment_of, find_part

    if os.environ.get(DATABASE, "").startswith("airflow-db-not-allowed"):  # so that code of a task reaches no database by mistake
        del os.environ[DATABASE]
    if not {DATABASE, f"{DATABASE}_CMD"} & set(os.environ):
        scheduler = find_part(settings.home, "airflow-scheduler")
        if scheduler is None:
            raise LedgerError(f"found no settings of Airflow, and none that runs for {settings.home}: run make up")
        os.environ |= {name: text for name, text in environment_of(scheduler).items() if name.startswith("AIRFLOW")}


def main() -> int:
    """Clean up once; returns the exit code."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(message)s")
    try:
        settings = read_settings()
        use_environment(settings)
        before = oldest(settings, datetime.now(UTC))
        spared = clean_database(before)
        from airflow.configuration import conf

        files, size = remove_logs(Path(conf.get("logging", "base_log_folder")), before, spared)
    except LedgerError as error:
        log.error("%s", error)
        return error.exit_code
    left = f"; left alone, because an older run has not ended: {', '.join(spared)}" if spared else ""
    log.info("before %s: database cleaned, %d log files (%.1f MB) removed%s", f"{before:%Y-%m-%d}", files, size / 2**20, left)
    return 0


if __name__ == "__main__":
    sys.exit(main())
