"""What the gates said of each table, out of the control tables, for the page."""

import re
from urllib.parse import quote

from include.orchestration.defaults import dag_of_run
from include.quality_page.current import read_decisions
from include.quality_page.reading import Row, Warehouse
from spark_jobs.control.verdicts import Verdict, read_verdict
from spark_jobs.lake.tables import BY_NAME, QUALITY_RESULTS

RUNS_SHOWN = 20
_QUOTED = "'...'"

_NEWEST = """select * from (select *, row_number() over (partition by "table" order by _judged_at desc) as place from t)
    where place <= $count order by _judged_at desc"""


def newest(warehouse: Warehouse, runs: int = RUNS_SHOWN) -> dict[str, list[Verdict]]:
    """The last verdicts of every table, newest first; a table that was never judged has none."""
    found: dict[str, list[Verdict]] = {name: [] for name in BY_NAME}
    for verdict in _verdicts(warehouse, warehouse.select(QUALITY_RESULTS, _NEWEST, count=runs)):
        found.setdefault(verdict.table, []).append(verdict)
    return found


def of_table(warehouse: Warehouse, table: str, offset: int, count: int) -> list[Verdict]:
    """The verdicts of a table, newest first, from `offset` on."""
    sql = 'select * from t where "table" = $name order by _judged_at desc limit $count offset $offset'
    return _verdicts(warehouse, warehouse.select(QUALITY_RESULTS, sql, name=table, count=count, offset=offset))


def of_run(warehouse: Warehouse, run_id: str) -> list[Verdict]:
    """The verdicts of one run: closed ones first, then in the order of the layers."""
    rows = warehouse.select(QUALITY_RESULTS, "select * from t where run_id = $run_id limit 1000", run_id=run_id)
    order = list(BY_NAME)
    verdicts = _verdicts(warehouse, rows)
    return sorted(verdicts, key=lambda each: (each.success, order.index(each.table) if each.table in order else -1))


def dag_run_path(run_id: str) -> str | None:
    """The address of a DAG run below Airflow's; None for the run id of a job that was started by hand."""
    return None if re.fullmatch("[0-9a-f]{32}", run_id) else f"dags/{dag_of_run(run_id)}/runs/{quote(run_id, safe='')}"


def _verdicts(warehouse: Warehouse, rows: list[Row]) -> list[Verdict]:
    is_some_closed = not all(row["success"] for row in rows)
    decisions = read_decisions(warehouse) if is_some_closed else []
    return [read_verdict(row, decisions) for row in rows]
