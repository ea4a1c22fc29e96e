"""`python -m tests.support.picture`: remakes the pictures of the page "Quality" in the README and the docs (include/docs/images).

It serves the page without Airflow, over a warehouse of made-up runs in a temporary folder, and takes the screenshots.
"""

import tempfile
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from unittest.mock import patch

from playwright.sync_api import expect

from spark_jobs.lake import tables
from spark_jobs.runtime.settings import ROOT, Settings, read_settings
from tests.support import quality_rows as rows
from tests.support.browser import chromium
from tests.support.quality_site import serving, set_home

FOLDER = ROOT / "include/docs/images"
RUNS = 20  # the last one met a bad batch of transactions
OVERRULED = 14  # the run whose closed gate an operator overruled
NOW = rows.done_at(RUNS) + timedelta(minutes=4)
PAGES = {  # picture -> the page, and its height
    "quality": ("", 815),
    "decision": ("decisions", 925),
    "quarantine": (f"quarantine?table=silver.transactions_quarantine&first_batch={RUNS}&rule=amount_scale", 860),
    "table": ("table?name=silver.transactions", 840),
    "run": (f"run?dag_id=medallion&run_id={rows.run_id(RUNS).replace('+', '%2B')}", 700),
}


def main() -> None:
    """Fill the warehouse, serve the page as it is a few minutes after the last run, keep what a browser shows of it."""
    with tempfile.TemporaryDirectory() as home:
        set_home(Path(home))
        from include.quality_page.status import read_status  # imports Airflow, which reads its home then

        fill(read_settings())
        with serving() as url, patch("include.quality_page.app.read_status", partial(read_status, now=NOW)):
            for file in take(url):
                print(f"{file.relative_to(ROOT)}: {file.stat().st_size / 1000:.0f} kB")


def fill(settings: Settings) -> None:
    """Runs 1 to RUNS of the pipeline, two of which met a closed gate; an operator released one of them anyway."""
    every = [table.name for layer in tables.LAYERS.values() for table in layer]
    closed = {(OVERRULED, "silver.transactions_duplicates"): ["conflicting_per_thousand: found 61, expected at most 50"]}
    verdicts = [
        rows.verdict(number, name, *closed.get((number, name), []))
        for number in range(1, RUNS + 1)
        for name in every
        if number < RUNS or (name != "silver.transactions" and not name.startswith("gold."))  # its gate closed before gold
    ]
    batches = [
        rows.batch(number, topic) for number in range(1, RUNS + 1) for topic in rows.TOPICS if (number, topic) != (RUNS, "transactions")
    ]
    rows.write(settings, tables.QUALITY_RESULTS, verdicts)
    rows.write(settings, tables.BATCHES, batches)
    rows.write(settings, tables.DECISIONS, [rows.decision(OVERRULED, "silver", "release anyway", "Ada", "a known fault of one branch")])
    rows.write(
        settings, tables.RELEASES, [rows.release(number, number, name, 1000 * number) for number in range(1, RUNS) for name in every]
    )
    rows.write(settings, tables.AUDITS, [rows.audited(RUNS - 1, name) for name in every if not name.startswith("bronze.")])
    rows.close_gate(settings, RUNS, 10)
    missing = {tables.BRONZE_TRANSACTIONS: 200, tables.BRONZE_CUSTOMERS: 100, tables.BRONZE_ACCOUNTS: 100}  # the rest of the run's records
    for table, count in missing.items():
        rows.write(settings, table, [rows.bronze(RUNS, 1000 + at) | {"_topic": table.topic} for at in range(count)])
    for number in range(1, RUNS + 1):
        rows.judged(settings, number, "silver.transactions", 500, quarantined_per_thousand=800 if number == RUNS else 10 + number % 7)


def take(url: str) -> Iterator[Path]:
    """Screenshots of the upper parts of the pages; gives their files."""
    FOLDER.mkdir(exist_ok=True)
    with chromium() as browser:
        for name, (path, height) in PAGES.items():
            page = browser.new_page(viewport={"width": 1250, "height": height})
            page.goto(url + path)
            expect(page.get_by_role("heading").first).to_be_visible()
            page.screenshot(path=FOLDER / f"{name}.png")
            yield FOLDER / f"{name}.png"


if __name__ == "__main__":
    main()
