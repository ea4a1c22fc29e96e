"""Accounts whose alerts an operator has silenced: an append-only table with who, why and when. The newest row of an account counts."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from spark_jobs import control
from spark_jobs.lake.tables import ALERT_SILENCES
from spark_jobs.runtime.settings import Settings


def record(settings: Settings, account_id: str, who: str, why: str, now: datetime, *, until: datetime | None, is_silenced: bool) -> None:
    """Silence an account's alerts from now on (`until` a time, or for good), or no longer."""
    at = control.later_than((row["decided_at"] for row in _rows(settings)), now)
    row = {"account_id": account_id, "is_silenced": is_silenced, "until_at": until, "who": who, "why": why, "decided_at": at}
    control.append(settings, ALERT_SILENCES, [row])


def in_effect(settings: Settings, now: datetime) -> dict[str, dict[str, Any]]:
    """The accounts that are silenced at a time, each with the row that says so."""
    newest = {row["account_id"]: row for row in sorted(_rows(settings), key=lambda row: row["decided_at"])}
    return {account: row for account, row in newest.items() if row["is_silenced"] and (row["until_at"] is None or now < row["until_at"])}


def _rows(settings: Settings) -> Iterable[dict[str, Any]]:
    rows: list[dict[str, Any]] = control.read(settings, ALERT_SILENCES).to_pylist()
    return rows
