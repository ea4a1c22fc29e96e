"""The schemas that new values name: asked for once, and put on record before a row is judged by them."""

import logging
import time
from collections.abc import Callable

from pyspark.sql import DataFrame, functions as F

from expectations.wire_format import HEADER_BYTES, MAGIC, WireSchema, check
from spark_jobs.control import rule_sets
from spark_jobs.lake.topic import Topic
from spark_jobs.runtime.errors import first_line
from spark_jobs.runtime.settings import Settings

log = logging.getLogger(__name__)

_MOST = 100  # ids that are asked for at a time, those of most rows first: whoever writes to a topic can name any number of them
_TOLD = 10  # ids that a line of the log names
_AGAIN_SECONDS = 60.0  # before a process asks again for a schema by which nothing can be read
_refused: dict[tuple[str, int], float] = {}


def learn(settings: Settings, topic: Topic, read: Callable[[], DataFrame]) -> None:
    """Put on record the schemas that values of some rows (`value`) name, where a registry is set and knows them. Else no row is read.

    A schema that the registry does not know, or by which no value can be read, is not recorded: its records go to quarantine. Raises
    LedgerError where the registry does not answer.
    """
    url = settings.schema_registry_url
    if url is None:
        return
    known, now = {schema.id for schema in rule_sets.schemas(settings, topic.name)}, time.monotonic()
    unknown = [number for number in _named(read()) if number not in known and _refused.get((url, number), 0.0) <= now]
    if not unknown:
        return
    from spark_jobs.kafka.schema_registry import Registry  # half a second of imports

    registry, found, strange = Registry(settings), list[WireSchema](), list[str]()
    for number in unknown[:_MOST]:
        try:
            registered = registry.find(number)
            if registered is None:
                strange.append(str(number))
            else:
                check(schema := WireSchema(number, *registered))
                found.append(schema)
                continue
        except ValueError as error:
            log.warning("%s: schema %d: %s: its records go to quarantine", topic.name, number, first_line(error))
        _refused[url, number] = now + _AGAIN_SECONDS
    if strange:
        more = f" and {len(strange) - _TOLD} more" if len(strange) > _TOLD else ""
        log.warning("%s: the registry knows no schema %s%s: their records go to quarantine", topic.name, ", ".join(strange[:_TOLD]), more)
    if len(unknown) > _MOST:
        log.warning("%s: found %d new schemas, of which the first %d were asked for", topic.name, len(unknown), _MOST)
    rule_sets.record_schemas(settings, topic.name, found)


def _named(rows: DataFrame) -> list[int]:
    """The ids in the headers of values, those of most rows first."""
    behind = rows.where((F.substring("value", 1, 1) == MAGIC) & (F.length("value") > HEADER_BYTES))
    ids = behind.groupBy(F.hex(F.substring("value", 2, HEADER_BYTES - 1)).alias("id")).agg(F.count("*").alias("rows"))
    return [int(row["id"], 16) for row in ids.orderBy(F.desc("rows"), "id").limit(10 * _MOST).collect()]
