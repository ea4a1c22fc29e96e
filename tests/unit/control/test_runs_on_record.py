"""What is asked of runs and releases on record, of which there are more every day: the right rows, and no more of them than needed."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from spark_jobs import control
from spark_jobs.lake.tables import BATCHES, RELEASES, ensure_tables
from spark_jobs.releases import releases, retention
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.settings import Settings
from tests.support.warehouse import settings_of

NOW = datetime(2026, 5, 20, 12, tzinfo=UTC)
TOTALS, SHARE = "gold.daily_totals", "gold.debit_share"


def run(job: str, table: str, last: int, minutes: int | None = None, versions: str | None = None) -> dict[str, Any]:
    ended = None if minutes is None else NOW + timedelta(minutes=minutes)
    return {"job": job, "table": table, "first_batch": last, "last_batch": last, "finished_at": ended, "_read_versions": versions}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    settings = settings_of(tmp_path)
    ensure_tables(settings, [BATCHES, RELEASES])
    return settings


def test_runs_are_in_the_order_of_their_batches_and_those_after_one_are_found(settings: Settings) -> None:
    others = [run("silver", "silver.customers", 9), run("gold", "silver.transactions", 8)]
    control.append(settings, BATCHES, [*(run("silver", "silver.transactions", last) for last in (3, 1, 10, 2)), *others])
    found = {after: control.batches(settings, "silver", "silver.transactions", after=after) for after in (-1, 2, 10)}
    assert {after: [row["last_batch"] for row in rows] for after, rows in found.items()} == {-1: [1, 2, 3, 10], 2: [3, 10], 10: []}
    assert control.newest_run(settings, "silver", "silver.transactions") == found[-1][-1]
    assert control.last_batches(settings, "silver") == {"silver.transactions": 10, "silver.customers": 9}
    assert [control.last_batch(settings, "silver", name) for name in ("silver.customers", "silver.accounts")] == [9, 0]


def test_before_the_first_run_there_is_nothing(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    assert control.batches(settings, "gold", TOTALS) == []
    assert control.newest_run(settings, "gold", TOTALS) is None
    assert (control.last_batches(settings, "gold"), control.versions_read_by_gold(settings)) == ({}, {})
    assert (releases.latest_release(settings), retention.offered(settings, NOW)) == (None, [])


def test_of_each_gold_table_the_newest_run_is_found_up_to_a_time(settings: Settings) -> None:
    """A run whose end is not on record is older than all; of runs that ended at once, that of the later batch counts."""
    rows = [run("gold", TOTALS, 1, versions='{"a": 1}'), run("gold", TOTALS, 2, 1, '{"a": 2}'), run("gold", TOTALS, 3, 9, '{"a": 3}')]
    rows += [run("gold", SHARE, 1, 0, '{"a": 1}'), run("gold", SHARE, 2, 2, '{"a": 4}'), run("gold", SHARE, 3, 2, '{"a": 5}')]
    control.append(settings, BATCHES, [*rows, run("gold", TOTALS, 4, 10), run("gold", TOTALS, 5, 11, "")])

    def found(minutes: int | None) -> list[tuple[str, int]]:
        upto = None if minutes is None else NOW + timedelta(minutes=minutes)
        return [(row["table"], row["last_batch"]) for row in control.newest_gold_runs(settings, upto)]

    assert found(None) == [(SHARE, 3), (TOTALS, 3)]
    assert found(8) == [(TOTALS, 2), (SHARE, 3)]
    assert found(-1) == [(TOTALS, 1)]
    assert control.versions_read_by_gold(settings) == {"a": 3}
    assert control.versions_read_by_gold(settings, NOW + timedelta(minutes=8)) == {"a": 5}


def test_the_newest_release_and_one_by_its_number_are_found(settings: Settings) -> None:
    published = {number: NOW - timedelta(days=20 - number) for number in range(1, 15)}
    named = [("bronze.transactions", 5), (TOTALS, None)]
    control.append(
        settings,
        RELEASES,
        [
            {"release_id": number, "table": name, "version": number, "rows": 7, "last_batch": last, "released_at": at}
            for number, at in published.items()
            for name, last in named
        ],
    )
    assert releases.times_of_releases(settings) == published
    newest = releases.latest_release(settings)
    assert newest == releases.find_release(settings, 14) == releases.read_releases(settings)[-1]
    assert newest is not None
    assert (newest.versions, newest.last_batches) == ({"bronze.transactions": 14, TOTALS: 14}, {"bronze.transactions": 5})
    assert retention.offered(settings, NOW) == [12, 13, 14]  # the successor of release 12 is seven days old
    with pytest.raises(LedgerError, match=r"there is no release 15: found \.\.\. 5, 6, 7, 8, 9, 10, 11, 12, 13, 14$"):
        releases.find_release(settings, 15)


def test_rows_that_are_not_wanted_are_not_read(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A week of releases every 45 seconds has 322,000 rows: no step of a run may make objects of all of them."""
    control.append(settings, BATCHES, [run("gold", TOTALS, last, last, '{"a": 1}') for last in range(1, 1001)])
    control.append(settings, RELEASES, [{"release_id": number, "table": TOTALS, "released_at": NOW} for number in range(1, 1001)])
    taken = list[int]()
    query = control.query

    def count(*arguments: Any) -> Any:
        answer = query(*arguments)
        taken.append(answer.num_rows)
        return answer

    monkeypatch.setattr(control, "query", count)
    control.last_batch(settings, "gold", TOTALS)
    control.newest_run(settings, "gold", TOTALS)
    control.versions_read_by_gold(settings)
    releases.latest_release(settings)
    releases.find_release(settings, 500)
    assert len(taken) == 5
    assert max(taken) == 1
