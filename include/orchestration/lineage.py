"""How the lineage of a job names the task that started it, where Airflow's OpenLineage provider sends events of its own."""

import logging

from airflow.sdk import Context

log = logging.getLogger(__name__)

PARENT = "OPENLINEAGE_PARENT_ID"  # which spark_jobs/commands/lineage.py reads


def parent_of(context: Context) -> dict[str, str]:
    """The variable that names the task of a context, for the environment of its job; nothing where nobody has said where events go.

    What goes wrong is logged, and the job runs without a parent.
    """
    try:
        from airflow.providers.openlineage import conf

        if conf.is_disabled():
            return {}
        from airflow.providers.openlineage.plugins.macros import lineage_parent_id

        return {PARENT: lineage_parent_id(context["ti"])}
    except Exception as error:
        log.warning("the lineage of this task's job will name no parent: %s: %s", type(error).__name__, error)
        log.debug("", exc_info=True)
        return {}
