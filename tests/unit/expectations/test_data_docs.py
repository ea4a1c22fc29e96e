"""Data Docs work where there is no network: nothing in them is loaded from the web."""

import logging
import os
import re
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from threading import Barrier
from typing import Any

import pyarrow as pa
import pytest
from playwright.sync_api import expect

from expectations import data_docs
from expectations.context import import_great_expectations
from expectations.data_docs import cut_off_the_web, write_index
from expectations.gate import judge
from spark_jobs.releases import gates
from spark_jobs.runtime.errors import GateClosed
from spark_jobs.runtime.settings import Settings
from tests.support.browser import chromium, keep
from tests.support.warehouse import LOADED

pytestmark = pytest.mark.xdist_group("expectations")


def test_the_list_of_reports_and_a_report_are_opened_as_files(copy_home: Callable[[], Settings]) -> None:
    settings = copy_home()
    with suppress(GateClosed):
        gates.run(settings, "gold", "run <1>", now=LOADED)
    folder = settings.quality / "data_docs"
    pages = list(folder.rglob("*.html"))
    assert len(pages) > 20
    assert [page for page in pages if re.search(r"""<script|(<link|<img|url\()[^>]*https?:""", page.read_text())] == []
    assert [page for page in pages if "Data asset" in page.read_text()] == []  # it would say None
    asked: list[str] = []
    with chromium() as browser:
        for scheme, width in (("light", 1300), ("dark", 420)):
            page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)  # type: ignore[arg-type]
            page.on("request", lambda request: asked.append(request.url))
            page.goto((folder / "index.html").as_uri())
            rows = page.locator("#reports tbody tr")
            expect(rows).to_have_count(13)
            expect(page.get_by_role("row").filter(has_text="gold.daily_totals")).to_contain_text("2026-01-01 00:00:00")
            expect(rows.filter(has_text="run <1>")).to_have_count(13)
            keep(page, f"data-docs-index-{scheme}")
            page.get_by_role("link", name="gold.daily_totals").focus()
            page.keyboard.press("Enter")
            expect(page.locator(".alert").first).to_be_visible()
            expect(page.locator(".ge-section").filter(has_text="missing_values").last).to_be_visible()
            keep(page, f"data-docs-report-{scheme}")
            page.get_by_role("link", name="Home").click()
            expect(page.get_by_role("heading", name="Reports")).to_be_visible()
            assert (page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(17, 17, 17)") == (scheme == "dark")
    assert [address for address in asked if not address.startswith(folder.as_uri())] == []


@pytest.mark.parametrize(
    "text",
    [
        "<script\n src='https://example.org/x.js'></script>",
        '<script>$("x")</script>',
        '<link rel="stylesheet"\n href="https://example.org/x.css"/>',
        "<img class=a src='http://example.org/x.png'\n>",
        "<style>a { background: url('https://example.org/x.png') 0 0 }</style>",
    ],
)
def test_what_a_page_would_load_is_cut_off(text: str) -> None:
    page = cut_off_the_web(f"<head></head><p>before {text}after <a href='https://example.org'>a link is followed by people</a>")
    assert "before" in page
    assert "after <a href='https://example.org'>" in page
    assert not re.search("<script|https?://example.org/x", page)


def test_the_newest_reports_are_listed_and_it_is_said_where_the_others_are(copy_home: Callable[[], Settings]) -> None:
    folder = copy_home().quality / "data_docs"
    for number in range(510):
        report = folder / f"validations/silver/customers/run/2026{number:04}T000000.000000Z/profile.html"
        report.parent.mkdir(parents=True)
        report.write_text('Status:</span> <i class="x"></i> <span class="text-warning">passed, 1 warning</span>')
    write_index(folder)
    text = (folder / "index.html").read_text()
    assert text.count("<tr><td>") == text.count('<span class="text-warning">passed, 1 warning</span>') == 500
    assert "500 reports of gates, newest first; older ones are in the folder validations" in text
    assert "/20260509T" in text
    assert "/20260009T" not in text
    report = folder / "validations/silver/customers/run/20270101T000000.000000Z/profile.html"
    report.parent.mkdir()
    report.touch()
    write_index(folder, [report])
    text = (folder / "index.html").read_text()
    assert text.count("<tr><td>") == 500
    assert "500 reports of gates, newest first; older ones are in the folder validations" in text
    assert ("/20270101T" in text, "/20260010T" in text, "/20260011T" in text) == (True, False, True)
    os.link(folder / "index.html", before := folder / "index before")
    next(folder.rglob("20270101T*/*.html")).unlink()
    write_index(folder)
    assert "/20270101T" not in (folder / "index.html").read_text()
    assert before.read_text() == text  # its file was swapped and not written over: the next list is made of it


def test_what_failed_comes_first_in_a_report_then_warnings(tmp_path: Path) -> None:
    icons = {"Head": "", "fine": "fa-check-circle", "warned": "fa-exclamation-circle", "broken": "fa-times"}
    table = '<table class="table"><tr><td><i class="fas {}"></i></td></tr></table>'
    sections = "".join(
        f'<div class="ge-section" id="section-{number}"><h5>{name}</h5>{table.format(icon)}</div>'
        for number, (name, icon) in enumerate(icons.items(), 1)
    )
    file = tmp_path / "report.html"
    file.write_text(cut_off_the_web(f"<html><head></head><body><div>{sections}</div></body></html>"))
    with chromium() as browser:
        page = browser.new_page()
        page.goto(file.as_uri())
        tops = {name: page.get_by_role("heading", name=name).evaluate("e => e.getBoundingClientRect().top") for name in icons}
    assert sorted(tops, key=lambda name: tops[name]) == ["Head", "broken", "warned", "fine"]


def test_the_page_of_a_suite_is_made_again_when_the_suite_is_another_one(tmp_path: Path) -> None:
    def page_after(run: str, *keys: str) -> tuple[int, str]:
        [judgement] = judge(tmp_path, "gold", {"gold.own": lambda _: pa.table({"found": [0]})}, run, LOADED, keys={"gold.own": keys})
        assert judgement.passed
        file = tmp_path / "data_docs/expectations/gold/own.html"
        return file.stat().st_mtime_ns, file.read_text()

    first = page_after("run-1", "day")
    assert page_after("run-2", "day") == first
    made, text = page_after("run-3", "day", "district")
    assert made > first[0]
    assert text != first[1]
    assert len(list((tmp_path / "data_docs/validations").rglob("*.html"))) == 3


def test_a_run_reports_without_a_look_at_the_reports_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipeline that is always busy leaves 300,000: of those of 2,000 runs Great Expectations made a list in 13 s, for each gate."""
    import_great_expectations()
    store: Any = import_module("great_expectations.data_context.store.tuple_store_backend").TupleFilesystemStoreBackend
    looked, list_keys = list[str](), store.list_keys

    def noted(self: Any, *arguments: Any) -> Any:
        looked.append(Path(self.full_base_directory).name)
        return list_keys(self, *arguments)

    def report(run: str) -> None:
        [judgement] = judge(tmp_path, "gold", {"gold.own": lambda _: pa.table({"found": [0]})}, run, LOADED, keys={"gold.own": ("day",)})
        assert judgement.passed

    report("run-1")
    monkeypatch.setattr(store, "list_keys", noted)
    monkeypatch.setattr(data_docs, "_runs", lambda _: pytest.fail("looks for all reports"))
    for number in range(2, 4):
        report(f"run-{number}")
    assert set(looked) == {"expectations"}
    for folder, kind in (("data_docs", "html"), ("gx", "json")):
        runs = [file.parts[-3] for file in (tmp_path / folder / "validations").rglob(f"*.{kind}")]
        assert sorted(runs) == ["run-1", "run-2", "run-3"]
    listed = re.findall("<td>(run-[0-9])</td>", (tmp_path / "data_docs/index.html").read_text())
    assert listed == ["run-3", "run-2", "run-1"]
    next((tmp_path / "data_docs/validations").rglob("run-2/*/*.html")).unlink()  # as an erasure does
    report("run-4")
    assert re.findall("<td>(run-[0-9])</td>", (tmp_path / "data_docs/index.html").read_text()) == ["run-4", "run-3", "run-1"]


def test_two_tables_are_measured_side_by_side_and_both_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    together = Barrier(2, timeout=60)

    def query(_: str) -> pa.Table:
        together.wait()
        return pa.table({"found": [0]})

    names = ["gold.one", "gold.two"]
    with caplog.at_level(logging.DEBUG, "expectations"):
        found = judge(tmp_path, "gold", dict.fromkeys(names, query), "run", LOADED, keys=dict.fromkeys(names, ("day",)))
    assert [judgement.passed for judgement in found] == [True, True]
    assert {"measuring gold.one, gold.two", "measuring gold.two, gold.one"} & set(caplog.messages)
