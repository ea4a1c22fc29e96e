"""The one entry point of the pipeline: `python -m spark_jobs.run <job>`.

Each job is a function `run_<job>` in commands/: what must hold before it, and what it calls; its options are in commands/arguments.py.
Exit codes: 0 done, 1 failed, 2 unusable arguments or settings, 3 gate closed, 4 audit difference, 5 another writer holds the lease.
"""

import argparse
import logging
import sys
from collections.abc import Callable, Sequence

from spark_jobs.commands import arguments, lineage
from spark_jobs.commands.engine import run_engine, run_engine_control
from spark_jobs.commands.forget import run_forget
from spark_jobs.commands.ingestion import run_accept, run_bronze, run_import, run_ingestion, run_replay
from spark_jobs.commands.inspection import run_audit, run_explain, run_export
from spark_jobs.commands.layers import run_backfill, run_gold, run_redrive, run_silver
from spark_jobs.commands.live import (
    run_districts,
    run_example,
    run_live,
    run_live_alerts,
    run_live_control,
    run_savepoint,
    run_state,
    run_upgrade,
)
from spark_jobs.commands.maintenance import run_maintenance, run_migrate
from spark_jobs.commands.preconditions import open_warehouse
from spark_jobs.commands.releases import run_decide, run_gate, run_release
from spark_jobs.runtime import engine, job_counts, private, progress, storage
from spark_jobs.runtime.errors import LedgerError, first_line
from spark_jobs.runtime.log_lines import JsonFormatter, TextFormatter
from spark_jobs.runtime.settings import Settings, read_settings

log = logging.getLogger("ledger")


def main(words: Sequence[str] | None = None) -> int:
    """Run one job; returns its exit code. A known failure is one line on stderr, without a stack trace."""
    private.keep_files_private()
    options = parse_arguments(words)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(TextFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # what fails within a batch comes back as the error of its query
    try:
        settings = read_settings()
    except LedgerError as error:
        log.error("%s", error)
        return error.exit_code
    if settings.log_format == "json":
        handler.setFormatter(JsonFormatter(options.name, options.run_id))
    if arguments.is_trial(options):
        return _run(settings, options)
    with job_counts.counted(settings, arguments.job_name(options)) as ending:
        ending.exit_code = _run(settings, options)
    return ending.exit_code


def _run(settings: Settings, options: argparse.Namespace) -> int:
    """Run a job; returns its exit code. What it raises is logged."""
    try:
        open_warehouse(settings, options)
        with (
            engine.lent(options.engine != arguments.NO_ENGINE),
            progress.shown(settings, options.name, options.run_id),
            lineage.reported(settings, options),
        ):
            JOBS[options.name](settings, options)
        return 0
    except LedgerError as error:
        log.error("%s", error)
        return error.exit_code
    except KeyboardInterrupt:
        log.error("interrupted")
        return 1
    except Exception as error:
        if storage.is_of_store(error):
            asked = "the object storage did not do what %s asked (%s): see that it answers and has room, and run %s again"
            log.error(asked, options.name, first_line(error), options.name)
            return 1
        log.info("where it failed:", exc_info=True)  # not foreseen: whoever fixes it needs the stack
        log.error("%s failed: %s: %s", options.name, type(error).__name__, first_line(error))
        return 1


_JOBS: tuple[Callable[[Settings, argparse.Namespace], None], ...] = (
    *(run_bronze, run_ingestion, run_accept, run_replay, run_import, run_silver, run_redrive, run_backfill, run_forget, run_gold),
    *(run_live, run_live_control, run_live_alerts, run_districts, run_state, run_upgrade, run_savepoint, run_example),
    *(run_gate, run_release, run_decide, run_maintenance, run_migrate, run_audit, run_explain, run_export, run_engine, run_engine_control),
)
JOBS = {job.__name__.removeprefix("run_"): job for job in _JOBS}


def parse_arguments(words: Sequence[str] | None) -> argparse.Namespace:
    """The command line; an unusable one ends the process with exit code 2 and one line."""
    return arguments.parse(words, {name: job.__doc__ for name, job in JOBS.items()})


if __name__ == "__main__":
    sys.exit(main())
