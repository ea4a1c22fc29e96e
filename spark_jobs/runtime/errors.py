"""What can go wrong, each with the exit code that a caller sees.

Every message is one line: what was found, what was expected, what to do.
"""

import re

from spark_jobs.runtime.masking import mask_error


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


def first_line(error: BaseException) -> str:
    """What an error says in one line, without its stack and masked; of a Python error inside a Spark batch, that error."""
    text = re.sub(r"\s*\n\s*(\x1b\[\d+m)?↳(\x1b\[\d+m)?", ":", mask_error(str(error)))  # so delta-rs leads from an error to its causes
    lines = [line.strip(" :") for line in text.splitlines() if line.strip(" :")]
    of_python = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Closed|Held)(: |$)", line)]
    own = [line for line in lines if not line.startswith("An error occurred while calling")]  # Py4J's first line
    return (of_python[-1:] or own[:1] or [type(error).__name__])[0]


def line_with_cause(error: BaseException) -> str:
    """`first_line`, and in brackets what lies at the bottom of it, such as a full disk, where Spark names it only there."""
    line = first_line(error)
    causes = re.findall(r"^\s*Caused by: (?:[\w.$]+: )*(.+)$", mask_error(str(error)), flags=re.MULTILINE)
    return f"{line} ({causes[-1].strip()})" if causes and causes[-1].strip() not in line else line
