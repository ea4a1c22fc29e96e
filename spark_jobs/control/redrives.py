"""How far re-drives have come in the tables of a topic, by the transaction identifiers in their commits. Starts no JVM."""

from spark_jobs import control
from spark_jobs.lake.topic import Topic
from spark_jobs.lake.topics import TOPICS
from spark_jobs.lake.txn import applied
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.settings import Settings

APPLICATION = "redrive"


def refuse_halfway(settings: Settings) -> None:
    """Raise LedgerError when a re-drive died between two tables: nothing may be built upon them until it was repeated."""
    for topic in halfway(settings):
        raise LedgerError(
            f"a re-drive of {topic.name} stopped halfway: found tables written and {topic.quarantine.name} not, "
            "expected all or none: run that redrive again"
        )


def halfway(settings: Settings) -> list[Topic]:
    """The topics for which a re-drive died between two tables: it has written some, but not the quarantine, which comes last."""
    application = control.application(settings, APPLICATION)
    return [topic for topic in TOPICS if (applied(settings, topic.quarantine, application) or 0) < last_write(settings, topic, application)]


def last_write(settings: Settings, topic: Topic, application: str) -> int:
    """The number of the last write of an application to any table of a topic."""
    return max(applied(settings, table, application) or 0 for table in (*topic.indexes, *topic.released))
