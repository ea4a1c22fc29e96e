"""Who may see which route of the page, by Airflow's own authorization. A route that is not in the table answers nobody.

Figures are for whoever may read the runs of the DAG `medallion`; what shows values of records is for whoever may read its task logs, which
quote them, too.
"""

from typing import Annotated

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import get_user
from fastapi import Depends, HTTPException, Request

from include.orchestration.defaults import PIPELINE_DAG

FIGURES, VALUES = DagAccessEntity.RUN, DagAccessEntity.TASK_LOGS
NEEDS = {
    "/": FIGURES,
    "/table": FIGURES,
    "/run": FIGURES,
    "/decisions": FIGURES,
    "/quarantine": FIGURES,
    "/quarantine.csv": VALUES,
    "/explain": VALUES,
    "/operations": FIGURES,
    "/data_docs/{path:path}": VALUES,
    "/static/{name}": FIGURES,
}


def may_read(request: Request, user: Annotated[BaseUser, Depends(get_user)]) -> None:
    """Let the request pass, and note whether its caller may see values; 401 without a login, 403 for what the caller may not see."""
    needed = NEEDS.get(request.scope["route"].path)
    if needed is None or not _may_read(user, FIGURES):
        raise HTTPException(403, "Forbidden")
    request.state.shows_values = _may_read(user, VALUES)
    if needed is VALUES and not request.state.shows_values:
        raise HTTPException(403, "this shows values of records: it is for operators, who may read the task logs of medallion")


def _may_read(user: BaseUser, entity: DagAccessEntity) -> bool:
    details = DagDetails(id=PIPELINE_DAG)
    return get_auth_manager().is_authorized_dag(method="GET", access_entity=entity, details=details, user=user)
