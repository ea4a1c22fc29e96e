"""The page "Quality" says what runs now, and how far it has come."""

import json
import time

from fastapi.testclient import TestClient

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
