"""What a re-drive would do, before it is asked to."""

import logging
from pathlib import Path

import pytest

from spark_jobs.reprocessing import redrive_plan
from spark_jobs.reprocessing.redrive_plan import Selection
from tests.support.warehouse import at, quarantined, settings_of, write


@pytest.mark.parametrize(
    ("chosen", "told"),
    [
        (Selection(), "4 rows break parseable, first in batch 1, last in 4"),
        (Selection(2, 3), "2 rows break parseable, first in batch 2, last in 3"),
        (Selection(4), "1 rows break parseable, first in batch 4, last in 4"),
        (Selection(1, 1), "1 rows break parseable, first in batch 1, last in 1"),
        (Selection(3, source="transactions#2"), "0 rows break parseable"),
        (Selection(source="transactions"), "4 rows break parseable, first in batch 1, last in 4"),
    ],
)
def test_a_dry_run_counts_the_rows_of_the_batches_asked_for(
    chosen: Selection, told: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The first and the last one included."""
    settings = settings_of(tmp_path)
    write(settings, {"silver.transactions_quarantine": [quarantined(at(0, batch, batch), b"T1", b"{") for batch in range(1, 5)]})
    asked = redrive_plan.plan(settings, "parseable", "silver.transactions", None, [], chosen)
    with caplog.at_level(logging.INFO):
        redrive_plan.tell(settings, asked, corrections_given=0)
    assert caplog.messages[0] == f"dry run: silver.transactions_quarantine: {told}: they would be judged again"
    assert caplog.messages[-1] == "dry run: nothing was changed"
