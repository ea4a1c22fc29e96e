"""Files are for the user who runs the pipeline alone: they hold names, balances and passwords."""

import os
import stat
from pathlib import Path

from spark_jobs.runtime import storage
from spark_jobs.runtime.errors import SettingsError
from spark_jobs.runtime.settings import Settings

UMASK = 0o077
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_OWN = ("stack", "warehouse", "checkpoints", "quality", "alerts")


def keep_files_private() -> None:
    """Make this process, and those that it starts, create files that no other user can open. Every entry point calls it first."""
    os.umask(UMASK)


def close(settings: Settings) -> None:
    """`close_home`, and the folder of the leases where the warehouse lies elsewhere: a user who can open a lease can hold it."""
    close_home(settings.home)
    leases = settings.warehouse / ".leases"
    if not storage.is_remote(leases) and leases.exists():
        leases.chmod(stat.S_IRWXU)


def close_home(home: Path) -> None:
    """Let only its owner enter a LEDGER_HOME; one that is missing will be made so, one that an older version left open is closed.

    Raises SettingsError for a folder of another user, or with other things in it: to close /tmp would harm the whole machine.
    """
    keep_files_private()
    try:
        if not home.exists() or not (found := home.stat().st_mode) & _OTHERS:
            return
        if found & stat.S_ISVTX or not _is_ours(home):
            raise SettingsError(
                f"LEDGER_HOME {home}: found a folder with other things in it, open to other users (mode {stat.S_IMODE(found):o}), "
                "expected one for this alone: choose a new folder, or close it with chmod 700"
            )
        home.chmod(stat.S_IRWXU)
    except OSError as error:
        raise SettingsError(f"LEDGER_HOME {home} cannot be used ({error.strerror}): choose a folder that you may write to") from None


def _is_ours(home: Path) -> bool:
    """Whether a home is empty or holds what a home holds."""
    names = {entry.name for entry in home.iterdir()}
    return not names or not names.isdisjoint(_OWN)
