"""`python -m tests.support.picture`: remakes include/docs/images/quality.png, the picture of the page "Quality" in the README.

It serves the page without Airflow, over a warehouse of made-up verdicts in a temporary folder, and takes a screenshot.
"""

import os
import socket
import tempfile
import threading
from pathlib import Path

import uvicorn
from fastapi import FastAPI
from playwright.sync_api import expect

from spark_jobs.lake import tables
from spark_jobs.runtime.settings import ROOT, Settings, read_settings
from tests.support import quality_rows as rows
from tests.support.browser import chromium

FILE = ROOT / "include/docs/images/quality.png"
RUNS = 20
CLOSED = {  # run -> the tables whose gate closed, and the expectation that failed
    14: ("silver.transactions_duplicates", "conflicting_per_thousand: found 61, expected at most 50"),
    20: ("silver.customers", "quarantined_per_thousand: found 48, expected at most 20"),
}


def main() -> None:
    """Fill the warehouse, serve the page, keep what a browser shows of it."""
    with tempfile.TemporaryDirectory() as home, socket.socket() as port:
        os.environ |= {"LEDGER_HOME": f"{home}/ledger", "AIRFLOW_HOME": f"{home}/airflow"}
        from include.quality_page.app import app, may_read  # imports Airflow, which reads its home then

        fill(read_settings())
        app.dependency_overrides[may_read] = lambda: None
        site = FastAPI()
        site.mount("/quality", app)
        port.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(site, log_level="warning"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [port]}, daemon=True)
        thread.start()
        try:
            take(f"http://127.0.0.1:{port.getsockname()[1]}/quality/", FILE)
        finally:
            server.should_exit = True
            thread.join()
    print(f"{FILE.relative_to(ROOT)}: {FILE.stat().st_size / 1000:.0f} kB")


def fill(settings: Settings) -> None:
    """Runs 1 to RUNS of the pipeline, two of which met a closed gate; an operator released one of them anyway."""
    every = [table.name for layer in tables.LAYERS.values() for table in layer]
    verdicts = [
        rows.verdict(number, name, *([CLOSED[number][1]] if CLOSED.get(number, ("",))[0] == name else []))
        for number in range(1, RUNS + 1)
        for name in every
    ]
    rows.write(settings, tables.QUALITY_RESULTS, verdicts)
    rows.write(settings, tables.BATCHES, [rows.batch(number, topic) for number in range(1, RUNS + 1) for topic in rows.TOPICS])
    rows.write(settings, tables.DECISIONS, [rows.decision(14, "silver", "release anyway", "Ada", "a known fault of one branch")])
    rows.write(settings, tables.RELEASES, [rows.release(number, number) for number in range(1, RUNS)])
    rows.write(settings, tables.AUDITS, [rows.audited(RUNS - 1, name) for name in every if not name.startswith("bronze.")])


def take(url: str, file: Path) -> None:
    """A screenshot of the upper part of the page."""
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 1250, "height": 596})
        page.goto(url)
        expect(page.get_by_role("heading", name="Quality", exact=True)).to_be_visible()
        file.parent.mkdir(exist_ok=True)
        page.screenshot(path=file)


if __name__ == "__main__":
    main()
