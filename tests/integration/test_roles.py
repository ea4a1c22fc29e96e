"""Who may do what in a running Airflow: every route of its REST API, of its pages' own API, of FAB's and of the page Quality, by role."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from include.demo.waiting import wait_for_dags
from include.stack import airflow
from include.stack.airflow_api import AirflowApi
from spark_jobs.runtime.settings import ROOT, read_endpoints
from tests.support.airflow_routes import LEAST

pytestmark = [pytest.mark.integration, pytest.mark.airflow]

RANK = {"viewer": 0, "operator": 1, "admin": 2}
REFUSED = (401, 403)
LOGOUT = ("GET", "/api/v2/auth/logout")
OF_A_ROW = re.compile(r"/backfills/\{backfill_id\}/|GET /api/v2/connections/enqueue-test")  # answer nobody about what is not there
NOT_ASKED = {("POST", "/api/v2/connections/defaults"): "admin"}  # it would make fifty connections
DELETE_ONE = {"actions": [{"action": "delete", "entities": ["nothing"], "action_on_non_existence": "skip"}]}
RUN = {"dag_run_id": "nothing", "state": "failed"}
BODIES: dict[tuple[str, str], Any] = {  # where Airflow reads out of the body what is to be allowed
    **{("PATCH", f"/api/v2/{name}"): DELETE_ONE for name in ("connections", "pools", "variables")},
    ("POST", "/api/v2/connections/enqueue-test"): {"connection_id": "nothing", "conn_type": "http"},
    ("PATCH", "/api/v2/dags/{dag_id}/dagRuns"): {"actions": [{"action": "update", "entities": [RUN]}]},
    ("POST", "/api/v2/dags/{dag_id}/clearDagRuns"): {"dag_runs": [{"dag_run_id": "nothing"}]},
}
DAGS = [file for file in (ROOT / "dags").glob("*.py") if file.stem != "__init__"]
BY_ITSELF = ("maintenance", "audit", "release_watch")  # their time may come meanwhile
UUID = "00000000-0000-7000-8000-000000000000"
FIGURES = {"/", "/table", "/run", "/decisions", "/quarantine", "/operations", "/static/{name}"}
VALUES = {"/quarantine.csv", "/explain", "/data_docs/{path:path}"}
ROUTES = """
from airflow.api_fastapi.core_api.routes.public import public_router
from airflow.api_fastapi.core_api.routes.ui import ui_router
from airflow.providers.fab.auth_manager.api_fastapi.routes.router import fab_router, register_routes

register_routes()
for router, prefix in ((public_router, ""), (ui_router, ""), (fab_router, "/auth")):
    for route in router.routes:
        for method in route.methods:
            print("route", method, prefix + route.path)
"""


@pytest.fixture(scope="module")
def clients(stack_home: Path) -> Iterator[dict[str, httpx.Client]]:
    """A browser of each user, logged in."""
    url = read_endpoints(stack_home)["airflow_url"]
    found = {user: httpx.Client(base_url=url, timeout=60, trust_env=False) for user in RANK}
    for user, client in found.items():
        words = {"username": user, "password": airflow.password_file(stack_home, user).read_text()}
        client.headers["Authorization"] = f"Bearer {client.post('/auth/token', json=words).raise_for_status().json()['access_token']}"
    yield found
    for client in found.values():
        client.close()


def test_every_route_of_airflow_answers_the_roles_of_the_table(api: AirflowApi, clients: dict[str, httpx.Client], tmp_path: Path) -> None:
    wait_for_dags(api, "medallion")
    environment = {**os.environ, "AIRFLOW_HOME": str(tmp_path)}
    told = subprocess.run([sys.executable, "-c", ROUTES], env=environment, capture_output=True, text=True, timeout=120, check=True)
    routes = {(words[1], words[2]) for line in told.stdout.splitlines() if (words := line.split())[:1] == ["route"]}
    assert len(routes) > 150
    assert routes - {LOGOUT} - set(LEAST) == set(), "say in the table who may ask these"
    assert set(LEAST) - routes == set(), "Airflow has these no more"
    token = (api._call("GET", "/dags/medallion") or {})["file_token"]
    found = {}
    for method, path in LEAST:
        for user, client in clients.items():
            if NOT_ASKED.get((method, path)) == user or OF_A_ROW.search(f"{method} {path}"):
                continue
            address = re.sub(r"\{[^}]*\}", "0", path.replace("{file_token}", token))
            status = client.request(method, address, json=BODIES.get((method, path), {}) if method != "GET" else None).status_code
            assert status < 500, (user, method, path)
            found[user, method, path] = status not in REFUSED
            client.cookies.clear()
    expected = {(user, method, path): RANK[user] >= RANK.get(LEAST[method, path], 3) for user, method, path in found}
    assert {each for each, allowed in found.items() if allowed != expected[each]} == set()


def test_no_dag_starts_for_a_viewer_and_each_does_for_an_operator(api: AirflowApi, clients: dict[str, httpx.Client]) -> None:
    wait_for_dags(api, *(file.stem for file in DAGS))
    dags = [str(dag["dag_id"]) for dag in (api._call("GET", "/dags?limit=100") or {})["dags"]]
    assert len(dags) == len(DAGS) > 10
    before = {dag: api.runs(dag) for dag in dags}
    whole: dict[str, Any] = {"logical_date": None}
    half: dict[str, Any] = {"conf": {}}  # is refused for its form, once it is allowed, and starts nothing
    assert {dag: clients["viewer"].post(f"/api/v2/dags/{dag}/dagRuns", json=whole).status_code for dag in dags} == dict.fromkeys(dags, 403)
    for user in ("operator", "admin"):
        answers = {dag: clients[user].post(f"/api/v2/dags/{dag}/dagRuns", json=half).status_code for dag in dags}
        assert answers == dict.fromkeys(dags, 422)
    assert [dag for dag in dags if dag not in BY_ITSELF and api.runs(dag) != before[dag]] == []


def test_an_operator_backfills_and_a_viewer_cannot_end_it(api: AirflowApi, clients: dict[str, httpx.Client]) -> None:
    wait_for_dags(api, "backfill_days")
    api._call("PATCH", "/dags/backfill_days", {"is_paused": True})  # so that nothing is rebuilt
    day = "2013-01-01T00:00:00Z"
    words = {"dag_id": "backfill_days", "from_date": day, "to_date": day, "max_active_runs": 1}
    try:
        assert clients["viewer"].post("/api/v2/backfills", json=words).status_code == 403
        made = clients["operator"].post("/api/v2/backfills", json=words)
        assert made.status_code == 200, made.text
        for action in ("pause", "unpause", "cancel"):
            path = f"/api/v2/backfills/{made.json()['id']}/{action}"
            assert [clients[user].put(path).status_code for user in ("viewer", "operator")] == [403, 200], action
        for run in api.runs("backfill_days"):
            path = f"/api/v2/dags/backfill_days/dagRuns/{run}"
            assert [clients[user].delete(path).status_code for user in ("viewer", "operator", "admin")] == [403, 403, 204]
    finally:
        api._call("PATCH", "/dags/backfill_days", {"is_paused": False})


def test_the_page_shows_figures_to_a_viewer_and_values_to_an_operator(clients: dict[str, httpx.Client]) -> None:
    addresses = {
        "/table": "/table?name=silver.transactions",
        "/run": "/run?dag_id=medallion&run_id=x",
        "/static/{name}": "/static/page.css",
    }
    found = {
        (user, path): client.get(f"/quality{addresses.get(path, path.replace('{path:path}', 'x.html'))}").status_code
        for user, client in clients.items()
        for path in FIGURES | VALUES
    }
    assert {path for path in FIGURES | VALUES if found["viewer", path] == 403} == VALUES
    assert {key for key, status in found.items() if status not in (200, 403, 404)} == set()
    assert [key for key, status in found.items() if key[0] != "viewer" and status == 403] == []
    told = {user: client.get("/quality/").text for user, client in clients.items()}
    assert {user for user, text in told.items() if "Your role sees figures." in text} == {"viewer"}


def test_a_users_token_is_no_tasks(clients: dict[str, httpx.Client]) -> None:
    for client in clients.values():
        assert client.patch(f"/execution/task-instances/{UUID}/run", json={}).status_code in REFUSED


def test_only_an_administrator_opens_the_pages_of_users_and_roles(stack_home: Path) -> None:
    opened = {}
    for user in RANK:
        with httpx.Client(base_url=read_endpoints(stack_home)["airflow_url"], timeout=60, trust_env=False) as client:
            token = re.search(r'name="csrf_token"[^>]*value="([^"]+)"', client.get("/auth/login/").text)
            assert token
            words = {"username": user, "password": airflow.password_file(stack_home, user).read_text()}
            assert client.post("/auth/login/", data=words).status_code == 400  # without the token of the form
            assert client.post("/auth/login/", data={**words, "csrf_token": token[1]}).status_code == 302
            assert client.get("/ui/auth/me").json()["username"] == user
            opened[user] = [client.get(f"/auth/{page}").status_code for page in ("users/list/", "users/add", "roles/list/")]
    assert opened == {"viewer": [302] * 3, "operator": [302] * 3, "admin": [200] * 3}
