"""The web application behind the page "Quality". Every route asks Airflow who the caller is; nothing answers without a login.

Whoever may read the task logs of the DAG `medallion` may read it: the page says no more of a record than those do.
"""

import logging
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.core_api.security import requires_access_dag
from fastapi import Depends, FastAPI, HTTPException, Query, Request, Response
from fastapi.responses import FileResponse, HTMLResponse, RedirectResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from pydantic import BeforeValidator

from include.orchestration.defaults import BACKFILL_DAG, PIPELINE_DAG
from include.quality_page import audits, charts, quarantine, verdicts
from include.quality_page.measures import measure
from include.quality_page.reading import Warehouse
from spark_jobs.lake.retention import MARGIN_DAYS
from spark_jobs.lake.tables import BY_NAME
from spark_jobs.runtime.errors import SettingsError
from spark_jobs.runtime.settings import Settings, read_settings

log = logging.getLogger(__name__)

FOLDER = Path(__file__).parent
STATIC = {name: FOLDER / "static" / name for name in ("page.css", "page.js", "data_docs.css")}
RUNS_A_PAGE = 50
# Nothing is loaded from elsewhere, and nobody else may show these pages in a frame.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self'; "
    "form-action 'self'; frame-ancestors 'self'; base-uri 'none'"
)

_templates = Environment(loader=FileSystemLoader(FOLDER / "templates"), autoescape=True, undefined=StrictUndefined)
_templates.globals["dag_run_path"] = verdicts.dag_run_path

PageNumber = Annotated[int, Query(ge=1, le=quarantine.MOST_PAGES)]
Batch = Annotated[int, BeforeValidator(lambda text: text or 0), Query(ge=0, le=2**62)]  # an empty field is no limit
RuleName = Annotated[str, Query(pattern=r"^([a-z][a-z0-9_]{0,99})?$")]
TableName = Annotated[str, Query(pattern=f"^({'|'.join(map(re.escape, quarantine.TABLES))})$")]

may_read = requires_access_dag("GET", DagAccessEntity.TASK_LOGS, PIPELINE_DAG)
app = FastAPI(
    title="Quality",
    dependencies=[Depends(may_read)],
    openapi_url=None,  # its pages would answer without a login
)


@app.middleware("http")
async def add_headers(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    """Tell the browser what these pages may do, and to keep none of them but the files that never change."""
    response = await call_next(request)
    response.headers["Content-Security-Policy"] = POLICY
    response.headers.setdefault("Cache-Control", "no-store")
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Referrer-Policy"] = "same-origin"
    return response


@app.get("/")
def overview(request: Request) -> Response:
    """Every table with its last verdicts, and the charts."""
    warehouse = _open()
    return _page(
        request,
        "overview.html",
        warehouse,
        tables=verdicts.newest(warehouse) if warehouse else {},
        release=verdicts.newest_release(warehouse) if warehouse else None,
        audit=audits.newest(warehouse) if warehouse else None,
        charts=charts.draw(measure(warehouse)) if warehouse else [],
    )


@app.get("/table")
def table(request: Request, name: str, page: PageNumber = 1) -> Response:
    """All verdicts of one table, newest first."""
    if name not in BY_NAME:
        raise HTTPException(404, "found no such table, expected one of bronze, silver or gold")
    warehouse = _open()
    found = verdicts.of_table(warehouse, name, (page - 1) * RUNS_A_PAGE, RUNS_A_PAGE + 1) if warehouse else []
    words = {"name": name, "page": page, "has_more": len(found) > RUNS_A_PAGE, "explain": verdicts.explain_command(name)}
    return _page(request, "table.html", warehouse, found=found[:RUNS_A_PAGE], **words)


@app.get("/run")
def run(request: Request, dag_id: str, run_id: str) -> Response:
    """What one DAG run did and how it was judged: closed gates first, each with the way to its rows in quarantine; or what it audited."""
    warehouse = _open()
    has_gates = warehouse is not None and dag_id in (PIPELINE_DAG, BACKFILL_DAG)
    found = verdicts.of_run(warehouse, run_id) if warehouse and has_gates else []
    batches = verdicts.batches_of_run(warehouse, run_id) if warehouse and has_gates else []
    audit = audits.of_run(warehouse, run_id) if warehouse and dag_id == audits.AUDIT_DAG else None
    return _page(request, "run.html", warehouse, name=f"{dag_id} {run_id}", found=found, batches=batches, audit=audit)


@app.get("/quarantine")
def rows(
    request: Request,
    table: TableName = "silver.transactions_quarantine",
    rule: RuleName = "",
    first_batch: Batch = 0,
    last_batch: Batch = 0,
    page: PageNumber = 1,
    chosen_for: TableName | None = None,
) -> Response:
    """The rows of a quarantine table, masked. `last_batch` 0: up to the newest.

    Rule and batches are those of a table: chosen for another one (`chosen_for`), they do not count.
    """
    warehouse = _open()
    if chosen_for not in (None, table):
        rule, first_batch, last_batch = "", 0, 0
    chosen, source = quarantine.Filter(rule or None, first_batch, last_batch), quarantine.TABLES[table]
    count = quarantine.count(warehouse, source, chosen) if warehouse else 0
    return _page(
        request,
        "quarantine.html",
        warehouse,
        tables=list(quarantine.TABLES),
        table=table,
        chosen=chosen,
        rules=quarantine.rules_of(warehouse, source, chosen) if warehouse else {},
        count=count,
        rows=quarantine.rows_of(warehouse, source, chosen, page) if warehouse else [],
        page=page,
        pages=min(max(1, -(-count // quarantine.PAGE)), quarantine.MOST_PAGES),
    )


@app.get("/data_docs/{path:path}")
def data_docs(request: Request, path: str) -> Response:
    """A file of Great Expectations' Data Docs; 404 for whatever does not lie in their folder.

    Pages get a style sheet of ours in place of those that they load from the web. The index is drawn by scripts from the web,
    so the overview stands for it: it leads to every report.
    """
    if path in ("", "index.html"):
        return RedirectResponse(f"{_base(request)}/")
    folder = (_settings().quality / "data_docs").resolve()
    try:
        file = (folder / path).resolve()
        is_there = file.is_relative_to(folder) and file.is_file()
    except (OSError, ValueError):  # a name too long, a null character
        is_there = False
    if not is_there:
        answer = _page(request, "gone.html", _open(), days=_settings().release_days + MARGIN_DAYS)
        answer.status_code = 404
        return answer
    if file.suffix != ".html":
        return FileResponse(file)
    style = f'<link rel="stylesheet" href="{_base(request)}/static/data_docs.css"></head>'
    return HTMLResponse(file.read_text(errors="replace").replace("</head>", style, 1))


@app.get("/static/{name}")
def static(name: str) -> Response:
    """Styles and scripts of the page, Plotly's among them; `?v=` names their version."""
    file = charts.script() if name == "plotly.min.js" else STATIC.get(name)
    if file is None:
        raise HTTPException(404, "found no such file")
    return FileResponse(file, headers={"Cache-Control": "private, max-age=86400"})


def _settings() -> Settings:
    try:
        return read_settings()
    except SettingsError as error:
        raise HTTPException(500, f"the settings of Airflow's API server cannot be used: {error}") from None


def _open() -> Warehouse | None:
    """The warehouse, or None where there is none yet."""
    settings = _settings()
    return Warehouse(settings) if settings.warehouse.is_dir() else None


def _base(request: Request) -> str:
    """The address of this application, without the host."""
    return str(request.scope.get("root_path", "")).rstrip("/")


def _page(request: Request, template: str, warehouse: Warehouse | None, **words: Any) -> Response:
    base = _base(request)
    text = _templates.get_template(template).render(
        base=base,
        airflow=base.rpartition("/")[0],
        warehouse=_settings().warehouse,
        is_there=warehouse is not None,
        problems=warehouse.problems if warehouse else [],
        **words,
    )
    return HTMLResponse(text)
