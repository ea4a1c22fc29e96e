"""`python -m include.airflow_cleanup`: old runs out of Airflow's database, and the logs of their tasks off the disk.

A run stays for as long as commits of the tables do: LEDGER_RELEASE_DAYS and a day, at least 30 days; one that has not ended (the
ingestion, a question that nobody has answered) stays until 30 days later. Works beside a running Airflow, and with the
settings of the embedded one where the environment holds none.
"""

import logging
import os
import sys
from collections.abc import Collection
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from spark_jobs.lake.retention import LEAST_LOG_DAYS, MARGIN_DAYS
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.settings import Settings, read_settings

log = logging.getLogger("ledger")

# Not `trigger`, `task_instance` and tables that refer to them: age says nothing of whether they are in use.
TABLES = ("job", "log", "asset_event", "import_error", "callback", "revoked_token")
DATABASE = "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"


def oldest(settings: Settings, now: datetime) -> datetime:
    """The time before which runs and their logs are removed."""
    return now - timedelta(days=max(settings.release_days + MARGIN_DAYS, LEAST_LOG_DAYS))


def clean_database(before: datetime) -> list[str]:
    """Remove what is old from Airflow's database; returns where the logs are of old runs that have not ended, below the log folder.

    `airflow db clean` removes runs by age alone, whether they have ended or not. So finished runs are removed here, and with them, by the
    database, what belongs to their tasks; the newest runs of a DAG stay, because Airflow counts on from them.
    """
    import pendulum
    from airflow.models.dagrun import DagRun
    from airflow.utils.db_cleanup import config_dict, run_cleanup
    from airflow.utils.session import create_session
    from airflow.utils.state import State
    from airflow.utils.types import DagRunType
    from sqlalchemy import delete, func, select

    newest = select(func.max(DagRun.id)).group_by(DagRun.dag_id)
    newest_by_itself = newest.where(DagRun.run_type != DagRunType.MANUAL)
    with create_session() as session:
        unfinished = select(DagRun.dag_id, DagRun.run_id).where(DagRun.state.in_(State.unfinished_dr_states), DagRun.run_after < before)
        unfinished_runs = sorted(f"dag_id={dag_id}/run_id={run_id}" for dag_id, run_id in session.execute(unfinished))
        ended = DagRun.state.in_(State.finished_dr_states) & (DagRun.run_after < before)
        session.execute(
            delete(DagRun).where(ended, DagRun.id.not_in(newest), DagRun.id.not_in(newest_by_itself)),
            execution_options={"synchronize_session": False},
        )
    wanted = [*TABLES, *(["session"] if "session" in config_dict else [])]  # sessions of logins: where users are kept in the database
    run_cleanup(
        clean_before_timestamp=pendulum.instance(before),
        table_names=wanted,
        skip_archive=True,
        confirm=False,
        error_on_cleanup_failure=True,
    )
    return unfinished_runs


def remove_logs(folder: Path, before: datetime, unfinished_runs: Collection[str] = ()) -> tuple[int, int]:
    """Remove log files last written before a time, but those below some folders, and folders that this empties; returns files, bytes."""
    removed: list[int] = []
    for file in [file for file in folder.rglob("*") if file.is_file() or file.is_symlink()]:
        stat = file.lstat()
        if stat.st_mtime >= before.timestamp() or file.relative_to(folder).as_posix().startswith(
            tuple(f"{each}/" for each in unfinished_runs)
        ):
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

    for name in (DATABASE, "AIRFLOW__CORE__SQL_ALCHEMY_CONN"):  # Airflow hides its database from tasks by these two
        if os.environ.get(name, "").startswith("airflow-db-not-allowed"):
            del os.environ[name]
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
        unfinished_runs = clean_database(before)
        from airflow.configuration import conf

        files, size = remove_logs(Path(conf.get("logging", "base_log_folder")), before, unfinished_runs)
    except LedgerError as error:
        log.error("%s", error)
        return error.exit_code
    left = f"; stay, because they have not ended: {', '.join(unfinished_runs)}" if unfinished_runs else ""
    log.info("before %s: database cleaned, %d log files (%.1f MB) removed%s", f"{before:%Y-%m-%d}", files, size / 2**20, left)
    return 0


if __name__ == "__main__":
    sys.exit(main())
