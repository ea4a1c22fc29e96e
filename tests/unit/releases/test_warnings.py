"""A warning lets a table pass, and is called one wherever people read of it."""

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote

import pytest

from spark_jobs.control.verdicts import newest_verdicts
from spark_jobs.releases import gates
from spark_jobs.runtime.errors import GateClosed
from spark_jobs.runtime.settings import Settings
from tests.support.gold_cases import unbalanced_day
from tests.support.warehouse import LOADED, good_rows, write

pytestmark = pytest.mark.xdist_group("expectations")
Copy = Callable[[], Settings]


def test_the_report_calls_a_table_with_warnings_what_the_page_calls_it(copy_home: Copy) -> None:
    settings, rows = copy_home(), good_rows()
    unbalanced_day(rows)
    changed = {name: rows[name] for name, good in good_rows().items() if rows[name] != good}
    write(settings, changed, mode="overwrite")
    with suppress(GateClosed):  # for other tables
        gates.run(settings, "gold", "run-1", now=LOADED)
    verdict = newest_verdicts(settings)["gold.account_days"]
    assert (verdict.passed, verdict.state, verdict.says) == (True, "warned", "passed, 1 warning")
    report = Path(unquote(verdict.report or "").removeprefix("file://")).read_text()
    assert f'<span class="text-warning">{verdict.says}</span>' in report
    assert "fa-times text-danger" not in report
    assert "fa-exclamation-circle text-warning" in report.partition("break closing = opening")[0].rpartition("<tr>")[2]
    (result,) = [json.loads(file.read_text()) for file in (settings.quality / "gx/validations/gold/account_days").rglob("*.json")]
    assert result["success"]  # so does the index of the reports
