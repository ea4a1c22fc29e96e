"""The page "Quality" says what runs now, and how far it has come."""

import json
import time
from datetime import UTC, datetime

from fastapi.testclient import TestClient

from spark_jobs.lake import tables
from spark_jobs.runtime.atomic_files import write_whole
from spark_jobs.runtime.settings import Settings
from tests.support import quality_rows as rows


def test_a_job_under_way_is_told_with_its_run(home: Settings, reader: TestClient) -> None:
    rows.fill(home, 1)
    facts = {"job": "backfill", "run_id": "backfill__2013-01-05T00:00:00+00:00", "says": "3 of 10 days in 0:01:00", "said_at": time.time()}
    file = home.checkpoints / "progress" / "backfill-1.json"
    write_whole(file, json.dumps(facts))
    text = reader.get("/").text
    assert "<b>Under way:</b> backfill, 3 of 10 days in 0:01:00" in text
    assert "/run?dag_id=backfill_days&amp;run_id=backfill__2013-01-05" in text
    write_whole(file, json.dumps(facts | {"job": "maintenance", "link": "http://127.0.0.1:4040"}))
    text = reader.get("/").text
    assert '<a href="http://127.0.0.1:4040" target="_blank" rel="noopener">Spark' in text
    assert "dag_id=backfill_days" not in text  # this run is none that the page knows
    file.unlink()
    assert "Under way" not in reader.get("/").text


def test_the_page_of_a_backfills_run_has_its_steps(home: Settings, reader: TestClient) -> None:
    run_id = "backfill__2013-01-05T00:00:00+00:00"
    days = [datetime(2013, 1, day, tzinfo=UTC) for day in (5, 6, 7)]
    rows.write(home, tables.BACKFILLS, [_step(run_id, number, state, *days[number : number + 2]) for number in (0, 1) for state in _STATES])
    rows.write(home, tables.BACKFILLS, [_step("another", 3, "done", *days[:2])])
    text = reader.get(f"/run?dag_id=backfill_days&run_id={run_id.replace('+', '%2B')}").text
    assert '<span class="big">2,468 rows</span> judged again in 2 steps, 6 rows of the tables changed.' in text
    assert text.count("<td>transactions</td>") == 2
    assert "2013-01-06 00:00:00</time></td><td><time" in text


_STATES = ("begun", "done")


def _step(run_id: str, number: int, state: str, start: datetime, end: datetime) -> dict[str, object]:
    counts = {"rows": 1234, "changed": 3} if state == "done" else {}
    facts = {"number": number, "backfill_id": "b", "run_id": run_id, "state": state, "part": "transactions"}
    return facts | counts | {"step_start": start, "step_end": end, "recorded_at": end}
