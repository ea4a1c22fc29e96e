"""The Airflow plugin: "Quality" in the navigation and as a tab of every DAG run, and the application that answers them.

Every part of Airflow imports this file, so it imports nothing of ours: the application comes with its first request. A fault in it
is an error of that request and never of Airflow.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from airflow.plugins_manager import AirflowPlugin

Message = MutableMapping[str, Any]


async def quality(scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]) -> None:
    """The application (ASGI)."""
    from include.quality_page.app import app

    await app(scope, receive, send)


# Addresses are relative to Airflow's own, so that it may lie below a path.
APPS = [{"app": quality, "url_prefix": "/quality", "name": "Quality"}]
VIEWS = [
    {"name": "Quality", "href": "quality/", "destination": "nav", "url_route": "quality", "nav_top_level": True},
    {"name": "Operations", "href": "quality/operations", "destination": "nav", "url_route": "operations", "nav_top_level": True},
    {
        "name": "Quality",
        "href": "quality/run?dag_id={DAG_ID}&run_id={RUN_ID}",
        "destination": "dag_run",
        "url_route": "quality-of-run",
    },
]


class QualityPlugin(AirflowPlugin):
    """What Airflow finds here."""

    name = "quality"
    fastapi_apps = APPS
    external_views = VIEWS
