"""Named points at which a test may kill a job, or pause it: inert unless LEDGER_KILL_POINT or LEDGER_PAUSE_POINT names one."""

import os
import signal


def kill_point(name: str) -> None:
    """End this process group's driver as `kill -9` would, or stop it as SIGSTOP does, if the environment asks for it at this point."""
    for variable, number in (("LEDGER_KILL_POINT", signal.SIGKILL), ("LEDGER_PAUSE_POINT", signal.SIGSTOP)):
        if os.environ.get(variable) == name:
            os.kill(os.getpid(), number)
