"""What can go wrong, each with the exit code that a caller sees.

Every message is one line: what was found, what was expected, what to do.
"""


class LedgerError(Exception):
    """A job stopped for a known reason (exit code 1)."""

    exit_code = 1


class SettingsError(LedgerError):
    """Arguments or settings cannot be used."""

    exit_code = 2


class GateClosed(LedgerError):
    """A quality gate is closed, or what is asked for has passed no gate."""

    exit_code = 3


class AuditDifference(LedgerError):
    """A table is not the function of bronze that it should be."""

    exit_code = 4


class LeaseHeld(LedgerError):
    """Another process writes this table."""

    exit_code = 5
