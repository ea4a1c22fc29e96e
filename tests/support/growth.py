"""What tests of the table "What grows, and what bounds it" share: its lines, the checks of them, and files that look old.

A check lives through 90 days of its line up to `yield`, by back-dated files and rows or a log of as many lines. Then the real clean-up
runs once for all, and the rest of the check says what must hold.
"""

import os
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from spark_jobs.lake.tables import Table
from spark_jobs.maintenance import job as maintenance
from spark_jobs.runtime.settings import ROOT, Settings

PAGE = ROOT / "include/docs/maintenance.md"
DAYS = 90
NOW = datetime.now(UTC).replace(microsecond=0)
DAYS_AGO = [NOW - timedelta(days=day, hours=-12) for day in range(DAYS, 0, -1)]  # the oldest first; the clean-up may come hours later

Check = Callable[[Settings], Iterator[None]]
CHECKS: dict[str, Check] = {}


def of_line(name: str) -> Callable[[Check], Check]:
    """The check of the line whose first cell begins with these words."""

    def register(check: Check) -> Check:
        CHECKS[name] = check
        return check

    return register


def lines() -> list[str]:
    """The first cell of each line of the table, without marks."""
    text = PAGE.read_text().partition("## What grows, and what bounds it")[2].partition("\n## ")[0]
    text = re.sub(r"`|\[(.+?)\]\(.+?\)", r"\1", text)
    return [row for row in re.findall(r"^\| (.+?) \|", text, re.M) if row != "what grows"]


def write_old(file: Path, at: datetime, text: str = "x" * 4096) -> Path:
    """Write a file that looks as if it had been written at a time."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    os.utime(file, (at.timestamp(), at.timestamp()))
    return file


def size(folder: Path) -> int:
    """The bytes of all files below a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def names(folder: Path) -> set[str]:
    """The files below a folder."""
    return {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}


def maintain(settings: Settings, *of: Table) -> None:
    """`run maintenance` of some tables; none of them needs a session."""
    maintenance.run(settings, of, lambda: pytest.fail("a session was started"), "test", 0)
