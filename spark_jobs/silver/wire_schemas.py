"""The schemas that new values name: asked for once, and put on record before a row is judged by them."""

import logging
from string import Template

from expectations.wire_format import HEADER_BYTES, WireSchema, check
from spark_jobs import control
from spark_jobs.control import rule_sets
from spark_jobs.lake.tables import Table
from spark_jobs.lake.topic import Topic
from spark_jobs.runtime.errors import first_line
from spark_jobs.runtime.settings import Settings

log = logging.getLogger(__name__)

_MOST = 100  # ids that are asked for at a time, those of most rows first: whoever writes to a topic can name any number of them
_LARGEST, _TOLD = 2**20, 10  # characters of a schema; ids that a line of the log names
# The ids in the headers of some values, as hexadecimal digits.
_NAMED = Template("""select substr(digits, 3, 8) as id, count(*) as rows from (select encode(value, 'hex') as digits from t where $where)
    where length(digits) > 2 * $header and substr(digits, 1, 2) = '00' group by 1 order by 2 desc, 1""")


def learn(settings: Settings, topic: Topic, table: Table, where: str = "true") -> None:
    """Put on record the schemas that values of a table name, where a registry is set and knows them; `where` is in DataFusion's SQL.

    A schema that the registry does not know, or by which no value can be read, is not recorded: its records go to quarantine. Raises
    LedgerError where the registry does not answer.
    """
    if settings.schema_registry_url is None or not table.exists(settings):
        return
    named = control.query(table.open(settings), _NAMED.substitute(where=where, header=HEADER_BYTES), table)
    known = {schema.id for schema in rule_sets.schemas(settings, topic.name)}
    unknown = [number for each in named["id"].to_pylist() if (number := int(each, 16)) not in known]
    if not unknown:
        return
    from spark_jobs.kafka.schema_registry import Registry  # half a second of imports

    registry, found, strange = Registry(settings), list[WireSchema](), list[str]()
    for number in unknown[:_MOST]:
        registered = registry.find(number)
        if registered is None:
            strange.append(str(number))
            continue
        schema = WireSchema(number, *registered)
        try:
            if len(schema.text) > _LARGEST:
                raise ValueError(f"found {len(schema.text):,} characters, expected at most {_LARGEST:,}")
            check(schema)
            found.append(schema)
        except ValueError as error:
            log.warning("%s: schema %d: %s: its records go to quarantine", topic.name, number, first_line(error))
    if strange:
        more = f" and {len(strange) - _TOLD} more" if len(strange) > _TOLD else ""
        log.warning("%s: the registry knows no schema %s%s: their records go to quarantine", topic.name, ", ".join(strange[:_TOLD]), more)
    if len(unknown) > _MOST:
        log.warning("%s: found %d new schemas, of which the first %d were asked for", topic.name, len(unknown), _MOST)
    rule_sets.record_schemas(settings, topic.name, found)
