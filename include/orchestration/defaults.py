"""What every task of every DAG starts from."""

from datetime import UTC, datetime, timedelta
from typing import Any

START = datetime(2024, 1, 1, tzinfo=UTC)

# Two more tries, after 30 to 60 and 60 to 120 seconds. Exit codes that no second try can change are never retried (see jobs.py).
DEFAULT_ARGS: dict[str, Any] = {
    "owner": "ledger",
    "retries": 2,
    "retry_delay": timedelta(seconds=30),
    "retry_exponential_backoff": 2.0,
    "max_retry_delay": timedelta(minutes=5),
}
