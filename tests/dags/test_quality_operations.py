"""The page Operations: the dashboard's panels, drawn of a real Prometheus."""

import json
import re
import time
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from playwright.sync_api import Browser

from include.quality_page.operations import DASHBOARD, words
from include.quality_page.words import NOTHING
from spark_jobs.runtime.atomic_files import write_whole
from spark_jobs.runtime.settings import Settings, endpoints_file
from tests.support import metrics_home
from tests.support.prometheus import Prometheus, await_until, scraping
from tests.support.quality_site import serving

QUESTIONS = ["Is data fresh?", "Is it right?", "Does it keep up?", "What does it cost?"]


def tell(settings: Settings, address: str) -> None:
    """As `make up WITH=prometheus` does."""
    write_whole(endpoints_file(settings.home), json.dumps({"prometheus_url": address}))


def fill(settings: Settings, prometheus: Prometheus) -> None:
    """Wait until there is a rate, while the ingestion goes on."""
    began = time.monotonic()

    def has_rate() -> bool:
        metrics_home.ingest(settings, time.monotonic() - began)
        return bool(prometheus.query("rate(ledger_query_rows_total[5m]) > 0"))

    await_until(has_rate, lambda: prometheus.query("up"))
    time.sleep(2)


def test_without_prometheus_it_says_how_to_start_it(home: Settings, reader: TestClient) -> None:
    assert "<code>make up WITH=prometheus</code>" in reader.get("/operations").text


def test_a_prometheus_that_is_away_is_told(home: Settings, reader: TestClient) -> None:
    tell(home, "http://127.0.0.1:9")
    answer = reader.get("/operations")
    assert answer.status_code == 200
    assert "Prometheus at http://127.0.0.1:9 does not answer as expected (ConnectError" in answer.text


def test_every_panel_of_the_dashboard_is_drawn(home: Settings, reader: TestClient, tmp_path: Path) -> None:
    metrics_home.make(home)
    with scraping(home, tmp_path) as prometheus:
        fill(home, prometheus)
        tell(home, prometheus.address)
        text = reader.get("/operations?hours=1").text
    assert re.findall(r"<h2>(.*?)</h2>", text) == QUESTIONS
    panels = [panel for panel in json.loads(DASHBOARD.read_text())["panels"] if panel["type"] != "row"]
    assert text.count('<div class="tile"') + text.count('<section class="card">') == len(panels)
    assert all(panel["title"] in text for panel in panels)
    assert re.search('<span class="faint">Newest release</span><span class="big">(.*?)</span>', text)[1] == "3"  # type: ignore[index]
    assert "bronze transactions" in text
    assert re.search(r'<polyline points="[0-9., ]+" class="one"', text)
    assert [reader.get(f"/operations?hours={hours}").status_code for hours in ("0", "169", "x")] == [422] * 3


@pytest.mark.parametrize(
    ("value", "unit", "says"),
    [
        (0.25, "s", "250 ms"),
        (7200, "s", "2 hours"),
        (1_234_567, "bytes", "1.23 MB"),
        (0.1234, "percentunit", "12.3 %"),
        (float("nan"), "percentunit", NOTHING),
        (12345.6, "short", "12,345"),
        (3.0, "none", "3"),
        (1.256, "none", "1.3"),
    ],
)
def test_values_are_in_their_unit(value: float, unit: str, says: str) -> None:
    assert words(value, unit) == says


def test_it_is_read_on_wide_and_narrow_screens(home: Settings, tmp_path: Path, browser: Browser) -> None:
    metrics_home.make(home)
    with scraping(home, tmp_path) as prometheus, serving() as address:
        fill(home, prometheus)
        tell(home, prometheus.address)
        for width in (1280, 390):
            page = browser.new_page(viewport={"width": width, "height": 900})
            page.goto(f"{address}operations?hours=1")
            assert page.locator("h2").all_inner_texts() == QUESTIONS
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            page.screenshot(path=tmp_path / f"operations-{width}.png", full_page=True)
            page.close()
