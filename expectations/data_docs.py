"""Data Docs that need no network: reports without what they would load from the web, and a list of them that no script draws."""

import os
import re
from collections.abc import Collection
from contextlib import suppress
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from urllib.parse import quote, unquote

LISTED = 500
INDEX = "index.html"
_STYLES = Path(__file__).parent / "data_docs.css"
_FROM_THE_WEB = re.compile(
    r"""<script\b.*?</script>\s*|<link\b[^>]*?href=["']?https?:[^>]*>\s*|<img\b[^>]*?src=["']?https?:[^>]*>\s*|@import[^;]*https?:[^;]*;""",
    re.DOTALL,
)
_PICTURE = re.compile(r"""url\(\s*["']?https?:[^)]*\)""")
_STATUS = re.compile(r'Status:</span>\s*<i [^>]*></i>\s*<span class="([\w-]+)">([^<]+)</span>')
_INDENTED = re.compile(r"\s*\n\s*")  # a third of a page
_NO_ASSET = "Data asset: None<br>"  # gates measure tables by SQL: Great Expectations knows no asset of its own
_ROW = re.compile(r'<tr><td>[^<]*</td><td><a href="([^"]*)">.*?</tr>', re.DOTALL)
_HEAD = 65_536  # characters of a report, that hold its status
_TIME = "%Y%m%dT%H%M%S.%fZ"
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Reports</title>
<style>{styles}</style>
</head>
<body>
<h1>Reports</h1>
<p>{count} reports of gates, newest first{rest}. The page Quality in Airflow leads to the same reports.</p>
<div style="overflow-x: auto" tabindex="0" role="region" aria-label="Reports">
<table id="reports"><thead><tr><th>Judged (UTC)</th><th>Table</th><th>Verdict</th><th>Run</th></tr></thead>
{rows}
</table>
</div>
</body>
</html>
"""


def cut_off_the_web(page: str) -> str:
    """A page of Great Expectations without its scripts and without any style, letter or picture from the web; with our styles in it.

    Busy pipelines leave hundreds of thousands, so it has no needless blanks either.
    """
    whole = _INDENTED.sub("\n", _PICTURE.sub("none", _FROM_THE_WEB.sub("", page)).replace(_NO_ASSET, ""))
    return whole.replace("</head>", f"<style>{styles()}</style></head>", 1)


def write_index(folder: Path, new: Collection[Path] = ()) -> None:
    """List the newest LISTED reports below a folder of Data Docs, in its index: time, table, verdict and run of each.

    `new` are those that have come since the index was written; of the others those stay that are still there. Without new ones, and
    without an index, all are looked for.
    """
    index = folder / INDEX
    if new and index.exists():
        listed_before = _ROW.finditer(index.read_text(encoding="utf-8"))
        others = [row[0] for row in listed_before if (folder / unquote(row[1])).exists()]
    else:
        runs = _runs(folder / "validations")
        new, others = [report for run in runs[: LISTED + 1] for report in run.rglob("*.html")], []
    reports = sorted(new, key=lambda file: (file.parts[-2], file.parts[:-2]), reverse=True)
    rows = list(dict.fromkeys([*(_row(folder, report) for report in reports[: LISTED + 1]), *others]))
    rest = "; older ones are in the folder validations" if len(rows) > LISTED else ""
    listed = rows[:LISTED]
    text = _PAGE.format(styles=styles(), count=f"{len(listed):,}", rest=rest, rows="\n".join(listed))
    draft = index.with_name(f".{INDEX}")
    draft.write_text(text, encoding="utf-8")
    os.replace(draft, index)  # whole, because the next list is made of this one


def _runs(folder: Path) -> list[Path]:
    """The folders of the runs that judged a table, `folder/<layer>/<table>/<run>`, those that changed last first."""
    found: list[tuple[float, str]] = []
    for table in folder.glob("*/*"):
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(table) as runs:
            found += [(run.stat().st_mtime, run.path) for run in runs]
    return [Path(path) for _, path in sorted(found, reverse=True)]


def _row(folder: Path, report: Path) -> str:
    place = report.relative_to(folder)
    table, (run, at) = ".".join(place.parts[1:-3]), place.parts[-3:-1]
    with open(report, encoding="utf-8", errors="replace") as text:
        status = _STATUS.search(text.read(_HEAD))
    verdict = f'<span class="{status[1]}">{status[2]}</span>' if status else "see the report"
    link = f'<a href="{quote(place.as_posix())}">{escape(table)}</a>'
    return f"<tr><td>{escape(_time(at))}</td><td>{link}</td><td>{verdict}</td><td>{escape(run)}</td></tr>"


def _time(text: str) -> str:
    """A run's time as people read it; the text itself where it is none."""
    try:
        return f"{datetime.strptime(text, _TIME).replace(tzinfo=UTC):%Y-%m-%d %H:%M:%S}"
    except ValueError:
        return text


def styles() -> str:
    """The styles of every page."""
    return _STYLES.read_text(encoding="utf-8")
