"""How the commands of `include` end: private files, one line for what goes wrong, an exit code."""

import signal
import sys
from collections.abc import Callable

from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.private import keep_files_private

INTERRUPTED = 130


def run_command(name: str, command: Callable[[], int | None], if_interrupted: str = "interrupted", *, cleans_up: bool = False) -> int:
    """Run a command; returns its exit code (None is 0). A LedgerError, or Ctrl-C, is one line on standard error that begins with `name`.

    `cleans_up`: SIGTERM ends it as Ctrl-C does, not at once.
    """
    keep_files_private()
    if cleans_up:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return command() or 0
    except LedgerError as error:
        sys.stderr.write(f"{name}: {error}\n")
        return error.exit_code
    except KeyboardInterrupt:
        sys.stderr.write(f"{name}: {if_interrupted}\n")
        return INTERRUPTED
