"""The job behind `run accept`: somebody takes it upon them that offsets are lost, or that a topic was made anew. Needs no Spark.

Works while the ingestion runs and is refused: what is accepted stands in the control tables, where its next try finds it.
"""

import logging

from deltalake import DeltaTable

from spark_jobs.bronze import incarnations, losses
from spark_jobs.bronze.standing import find_standing
from spark_jobs.errors import SettingsError
from spark_jobs.settings import Settings
from spark_jobs.tables import Table

log = logging.getLogger(__name__)


def run(settings: Settings, table: Table, topic: str, who: str, why: str) -> None:
    """Accept, once, exactly what is refused of a topic now; raises SettingsError when that is nothing."""
    standing = find_standing(settings, table, topic) if DeltaTable.is_deltatable(str(table.path(settings))) else None
    if standing is None or standing.refusal is None:
        raise SettingsError(
            f"topic {topic}: found nothing to accept, expected lost offsets or a topic that was made anew; nothing was written"
        )
    incarnations.record(settings, standing.life)
    if life := standing.refusal.anew:
        incarnations.record(settings, life, who, why)
        log.info("topic %s: accepted with Kafka's id %s; its records come as `_topic` %s", topic, life.topic_id, life.label)
    else:
        lost, label = standing.refusal.lost, standing.life.label
        losses.record(settings, table, label, lost, f"removed from Kafka before they were read; accepted by {who}: {why}")
    log.info("next: the ingestion goes on by itself if it runs; else start it")
