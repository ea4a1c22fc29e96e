"""A page out of its template: what every page has, and what it says in place of an error."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fastapi import HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.exceptions import HTTPException as StarletteHTTPException

from include.orchestration.defaults import dag_of_run
from include.quality_page import cards, explained, verdicts, words
from include.quality_page.parameters import what_is_wrong
from include.quality_page.reading import Warehouse
from spark_jobs.runtime.errors import SettingsError
from spark_jobs.runtime.settings import ROOT, Settings, read_settings

FOLDER = Path(__file__).parent
STATIC = {name: FOLDER / "static" / name for name in ("page.css", "page.js")} | {"data_docs.css": ROOT / "expectations/data_docs.css"}
SAYS = {"Not Found": "found no such page", "Not authenticated": "found no login: log in to Airflow, then load this page again"}

_templates = Environment(loader=FileSystemLoader(FOLDER / "templates"), autoescape=True, undefined=StrictUndefined)
_templates.globals |= {name: getattr(words, name) for name in ("age", "counted", "grouped", "moment", "number", "share", "size")}
_templates.globals |= {"dag_run_path": verdicts.dag_run_path, "owner": cards.OWNER, "with_runs": explained.with_runs}
_AGE_OF_FILES = int(max(file.stat().st_mtime for file in STATIC.values()))  # a changed file has another address


def settings() -> Settings:
    """The settings of the process that serves the pages; raises HTTPException where they cannot be used."""
    try:
        return read_settings()
    except SettingsError as error:
        raise HTTPException(500, f"the settings of Airflow's API server cannot be used: {error}") from None


def open_warehouse(request: Request) -> Warehouse | None:
    """The warehouse as the caller may see it, or None where there is none yet."""
    found = settings()
    return Warehouse(found, shows_values=request.state.shows_values) if found.warehouse.is_dir() else None


def base_of(request: Request) -> str:
    """The address of this application, without the host."""
    return str(request.scope.get("root_path", "")).rstrip("/")


def report_head(base: str) -> str:
    """What a report gets at the end of its head: the page's colours and letters, and what its own marks look like with them."""
    script = f'<script src="{base}/static/page.js?v={_AGE_OF_FILES}"></script>'
    styles = (f'<link rel="stylesheet" href="{base}/static/{name}?v={_AGE_OF_FILES}">' for name in ("page.css", "data_docs.css"))
    return "".join((script, *styles))


def render(request: Request, template: str, warehouse: Warehouse | None, **words: Any) -> Response:
    """A page about what is in the warehouse."""
    facts = {
        "warehouse": settings().warehouse,
        "is_there": warehouse is not None,
        "shows_values": request.state.shows_values,
        "problems": warehouse.problems if warehouse else [],
        "unreadable": warehouse.unreadable if warehouse else set(),
        "under_way": [],
    }
    return HTMLResponse(_text(request, template, facts | words))


async def refuse(request: Request, error: Exception) -> Response:
    """A page in place of what cannot be shown, with the status and the words of the error."""
    assert isinstance(error, StarletteHTTPException)
    return _refused(request, error.status_code, [SAYS.get(error.detail, error.detail)], error.headers)


async def refuse_question(request: Request, error: Exception) -> Response:
    """A page in place of an answer to an address that asks for what there is not: what was found, and what was expected."""
    assert isinstance(error, RequestValidationError)
    return _refused(request, 422, what_is_wrong(error.errors()))


def _refused(request: Request, status: int, lines: Sequence[str], headers: Mapping[str, str] | None = None) -> Response:
    # Whoever has not logged in is told no more than that.
    facts = {"is_there": True, "shows_values": getattr(request.state, "shows_values", True), "problems": lines, "under_way": []}
    return HTMLResponse(_text(request, "refused.html", facts), status, headers)


def _text(request: Request, template: str, facts: dict[str, Any]) -> str:
    base = base_of(request)
    return _templates.get_template(template).render(
        base=base,
        here=request.url.path.removeprefix(base).strip("/"),
        run_page=lambda run_id: f"{base}/run?dag_id={dag_of_run(run_id)}&run_id={quote(run_id, safe='')}",
        age_of_files=_AGE_OF_FILES,
        airflow=base.rpartition("/")[0],
        **facts,
    )
