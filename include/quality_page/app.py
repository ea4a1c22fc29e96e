"""The web application behind the page "Quality". Every route asks Airflow who the caller is, and what he may see (access.py)."""

from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Literal

from fastapi import Depends, FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, HTMLResponse, RedirectResponse, StreamingResponse
from starlette.exceptions import HTTPException as StarletteHTTPException

from include.orchestration.defaults import BACKFILL_DAG, PIPELINE_DAG, REDRIVE_DAG
from include.quality_page import audits, cards, charts, decisions, explained, lineage, quarantine, results, runs, verdicts
from include.quality_page.access import may_read
from include.quality_page.measures import Measures, measure
from include.quality_page.operations import ask_prometheus
from include.quality_page.parameters import Chosen, GoldName, Hours, PageNumber, ReleaseNumber
from include.quality_page.rendering import STATIC, base_of, open_warehouse, refuse, refuse_question, render, report_head, settings
from include.quality_page.status import read_status
from spark_jobs.lake.retention import MARGIN_DAYS
from spark_jobs.lake.tables import BRONZE, BY_NAME
from spark_jobs.runtime import progress

RUNS_A_PAGE = 50
DECISIONS_SHOWN = 200
RELEASES_SHOWN = 100
# Nothing is loaded from elsewhere, and nobody else may show these pages in a frame.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self'; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'self'; base-uri 'none'"
)

app = FastAPI(
    title="Quality",
    dependencies=[Depends(may_read)],
    openapi_url=None,  # its pages would answer without a login
    exception_handlers={StarletteHTTPException: refuse, RequestValidationError: refuse_question},
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
    """What readers see, what waits, how the tables come about, every table with its last verdicts, and the charts."""
    warehouse = open_warehouse(request)
    found = verdicts.newest(warehouse) if warehouse else {}
    status = read_status(warehouse) if warehouse else None
    old_after = settings().freshness_seconds
    measures = measure(warehouse) if warehouse else Measures([], Counter())
    taken = {table.topic: warehouse.newest(table, "_timestamp") for table in BRONZE} if warehouse else {}
    return render(
        request,
        "overview.html",
        warehouse,
        status=status,
        under_way=progress.of_jobs(settings()),
        now=status.now if status else None,
        graph=lineage.draw(found, status, old_after, taken) if status else None,
        old_after=old_after,
        cards=cards.all_cards(warehouse, found) if warehouse else [],
        audit=audits.newest(warehouse) if warehouse else None,
        measures=measures,
        charts=charts.draw(measures) if warehouse else [],
        rules=charts.rules(measures),
    )


@app.get("/table")
def table(request: Request, name: str, page: PageNumber = 1) -> Response:
    """A table: what its newest verdict found, its rows and bytes over time, its columns, and all its verdicts, newest first."""
    if name not in BY_NAME:
        raise HTTPException(404, f"table: found {name[:100]!r}, expected one of {', '.join(BY_NAME)}")
    warehouse = open_warehouse(request)
    found = verdicts.of_table(warehouse, name, (page - 1) * RUNS_A_PAGE, RUNS_A_PAGE + 1) if warehouse else []
    is_first = warehouse is not None and page == 1
    card = cards.card_of(warehouse, name, found, RELEASES_SHOWN) if warehouse else cards.Card(name, [], [])
    return render(
        request,
        "table.html",
        warehouse,
        name=name,
        page=page,
        neighbours=lineage.neighbours(name),
        card=card,
        results=results.results_of(warehouse.settings, found) if warehouse and is_first else [],
        charts=cards.charts_of(warehouse, card) if warehouse and is_first else [],
        found=found[:RUNS_A_PAGE],
        has_more=len(found) > RUNS_A_PAGE,
    )


@app.get("/run")
def run(request: Request, dag_id: str, run_id: str) -> Response:
    """What one DAG run did and how it was judged: closed gates first, each with the way to its rows in quarantine; or what it audited."""
    warehouse = open_warehouse(request)
    has_gates = warehouse is not None and dag_id in (PIPELINE_DAG, BACKFILL_DAG)
    batches = runs.batches_of_run(warehouse, run_id) if warehouse and has_gates else []
    steps = runs.steps_of_run(warehouse, run_id) if warehouse and dag_id == BACKFILL_DAG else []
    tasks = runs.tasks_of(dag_id, run_id, batches, steps) if has_gates else []
    return render(
        request,
        "run.html",
        warehouse,
        name=f"{dag_id} {run_id}" if verdicts.dag_run_path(run_id) else f"A job that was started by hand: {run_id}",
        run_id=run_id,
        under_way=[job for job in progress.of_jobs(settings()) if job.run_id == run_id],
        found=verdicts.of_run(warehouse, run_id) if warehouse and has_gates else [],
        conserved=runs.conservation(warehouse, batches) if warehouse else [],
        tasks=tasks,
        held_up=runs.held_up(warehouse, dag_id, tasks) if warehouse else [],
        batches=batches,
        steps=steps,
        audit=audits.of_run(warehouse, run_id) if warehouse and dag_id == audits.AUDIT_DAG else None,
    )


@app.get("/decisions")
def decided(request: Request) -> Response:
    """What waits for a decision, with its evidence and what each choice would do; and what was decided before."""
    warehouse = open_warehouse(request)
    status = read_status(warehouse) if warehouse else None
    return render(
        request,
        "decisions.html",
        warehouse,
        status=status,
        found=decisions.evidence(warehouse, status.open) if warehouse and status else [],
        unmet=partial(results.unmet, settings()),
        effects=decisions.effects(warehouse, status) if warehouse and status else None,
        log=status.decisions[:DECISIONS_SHOWN] if status else [],
    )


@app.get("/quarantine")
def rows(request: Request, of: Chosen, page: PageNumber = 1, by: Literal["rule", "batch", "source"] = "rule") -> Response:
    """The rows of a quarantine table, masked, and how many each rule, batch or source has."""
    warehouse = open_warehouse(request)
    source, chosen = of
    count = quarantine.count(warehouse, source, chosen) if warehouse else 0
    rules = quarantine.groups(warehouse, source, chosen, "rule") if warehouse else {}
    return render(
        request,
        "quarantine.html",
        warehouse,
        tables=list(quarantine.TABLES),
        table=source.name,
        chosen=chosen,
        rules=dict(sorted(rules.items())),
        by=by,
        kinds=quarantine.GROUPS,
        groups=rules if by == "rule" or not warehouse else quarantine.groups(warehouse, source, chosen, by),
        count=count,
        most_exported=quarantine.MOST_EXPORTED,
        rows=quarantine.rows_of(warehouse, source, chosen, (page - 1) * quarantine.PAGE) if warehouse else [],
        page=page,
        pages=min(max(1, -(-count // quarantine.PAGE)), quarantine.MOST_PAGES),
        redrive=quarantine.redrive_command(source.name, chosen),
        redrive_dag=REDRIVE_DAG,
        redrive_conf=quarantine.redrive_conf(source.name, chosen),
    )


@app.get("/quarantine.csv")
def exported_rows(request: Request, of: Chosen) -> Response:
    """The same rows as a file, masked in the same way; 503 where they cannot be read, as a file without rows would say there are none."""
    warehouse = open_warehouse(request)
    source, chosen = of
    if warehouse and not quarantine.count(warehouse, source, chosen) and warehouse.problems:
        raise HTTPException(503, warehouse.problems[0])
    name = f"{source.name.partition('.')[2]}.csv"
    lines = quarantine.as_csv(warehouse, source, chosen) if warehouse else iter(())
    return StreamingResponse(lines, media_type="text/csv", headers={"Content-Disposition": f'attachment; filename="{name}"'})


@app.get("/explain")
def explain(
    request: Request, table: GoldName = "gold.daily_totals", chosen_for: GoldName | None = None, release: ReleaseNumber = 0
) -> Response:
    """Cells of a gold table, as it is now or in a release, by the keys that are given; what made a cell, once all are given.

    Keys of another table do not count.
    """
    warehouse = open_warehouse(request)
    of = explained.TABLES[table]
    given = {name: request.query_params.get(name, "").strip()[:200] for name in of.keys} if chosen_for in (None, table) else {}
    keys = {name: value for name, value in given.items() if value}
    return render(
        request,
        "explain.html",
        warehouse,
        tables=list(explained.TABLES),
        table=of,
        keys=keys,
        release=release,
        releases=explained.releases(warehouse) if warehouse else [],
        answer=explained.answer(warehouse.settings, of, keys, release or None) if warehouse else explained.Answer(),
    )


@app.get("/operations")
def operations(request: Request, hours: Hours = 6) -> Response:
    """Is data fresh, is it right, does it keep up, what does it cost: the dashboard's panels, where Prometheus runs."""
    return render(request, "operations.html", open_warehouse(request), answer=ask_prometheus(settings(), hours), hours=hours)


@app.get("/data_docs/{path:path}")
def data_docs(request: Request, path: str) -> Response:
    """A file of Great Expectations' Data Docs; 404 for whatever does not lie in their folder.

    Reports get the page's own styles and colours. The overview stands for the list of reports: it leads to every one.
    """
    if path in ("", "index.html"):
        return RedirectResponse(f"{base_of(request)}/")
    folder = (settings().quality / "data_docs").resolve()
    try:
        file = (folder / path).resolve()
        is_there = file.is_relative_to(folder) and file.is_file()
    except (OSError, ValueError):  # a name too long, a null character
        is_there = False
    if not is_there:
        answer = render(request, "gone.html", open_warehouse(request), days=settings().release_days + MARGIN_DAYS)
        answer.status_code = 404
        return answer
    if file.suffix != ".html":
        return FileResponse(file)
    return HTMLResponse(file.read_text(errors="replace").replace("</head>", f"{report_head(base_of(request))}</head>", 1))


@app.get("/static/{name}")
def static(name: str) -> Response:
    """Styles and scripts of the page; `?v=` names their version."""
    file = STATIC.get(name)
    if file is None:
        raise HTTPException(404, "found no such file")
    return FileResponse(file, headers={"Cache-Control": "private, max-age=86400"})
