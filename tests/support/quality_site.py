"""The page "Quality" served by itself, without Airflow, for a browser: whoever asks may read."""

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse


def as_operator(request: Request) -> None:
    """In place of the question who asks: somebody who may see values."""
    request.state.shows_values = True


def as_viewer(request: Request) -> None:
    """In place of the question who asks: somebody who may see figures only. (What a viewer is refused is not asked here.)"""
    request.state.shows_values = False


@contextmanager
def serving() -> Iterator[str]:
    """Serve the page of LEDGER_HOME, as a frame of `/` as in Airflow, too; gives the page's address. AIRFLOW_HOME is set by the caller."""
    from include.quality_page.access import may_read  # imports Airflow, which reads its home then
    from include.quality_page.app import app

    assert "AIRFLOW_HOME" in os.environ or "PYTEST_CURRENT_TEST" in os.environ
    before = dict(app.dependency_overrides)
    app.dependency_overrides[may_read] = as_operator
    site = FastAPI()
    site.mount("/quality", app)
    site.get("/")(lambda: HTMLResponse('<iframe src="/quality/" style="position: fixed; inset: 0; width: 100%; height: 100%"></iframe>'))
    with socket.socket() as port:
        port.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(site, log_level="warning"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [port]}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{port.getsockname()[1]}/quality/"
        finally:
            server.should_exit = True
            thread.join()
            app.dependency_overrides.clear()
            app.dependency_overrides |= before


def set_home(home: Path) -> None:
    """Use a folder for what pages read and what Airflow writes, in a process that is no test."""
    os.environ |= {"LEDGER_HOME": f"{home}/ledger", "AIRFLOW_HOME": f"{home}/airflow"}
