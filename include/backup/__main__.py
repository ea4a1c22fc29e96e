"""`python -m include.backup create|restore FOLDER`: one moment of everything, out of a LEDGER_HOME and into an empty one."""

import argparse
import sys
from pathlib import Path

from include.backup.create import create
from include.backup.restore import audit, restore
from spark_jobs.lake.leases import WAIT_SECONDS
from spark_jobs.runtime.command import run_command
from spark_jobs.runtime.settings import read_settings


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns the exit code. What goes wrong is one line on standard error. A restore ends with the audit's code."""
    parser = argparse.ArgumentParser(prog="python -m include.backup", description=__doc__, allow_abbrev=False)
    parser.add_argument("command", choices=("create", "restore"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--wait", type=float, default=WAIT_SECONDS, metavar="SECONDS", help="for jobs that write (create)")
    options = parser.parse_args(arguments)
    folder = options.folder.expanduser().absolute()

    def command() -> int:
        settings = read_settings()
        if options.command == "create":
            made = create(settings, folder, options.wait, _say)
            _say(f"{folder}: {len(made.tables)} tables and {len(made.files):,} files, {made.size / 1e6:,.1f} MB, of {made.made_at}")
            return 0
        made = restore(settings, folder, _say)
        _say(f"{settings.home} is as it was at {made.made_at}; the audit compares its tables")
        return audit(settings)

    return run_command(options.command, command, "interrupted; run it again", cleans_up=True)


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
