"""What a re-drive is asked to do, checked before anything is written. Starts no JVM."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template

from spark_jobs import control
from spark_jobs.control import corrections, rule_sets
from spark_jobs.control.corrections import Correction
from spark_jobs.lake.topic import Topic
from spark_jobs.lake.topics import TOPICS
from spark_jobs.runtime.errors import SettingsError
from spark_jobs.runtime.settings import Settings
from spark_jobs.runtime.text import sql_text

log = logging.getLogger(__name__)

_CHOSEN = Template("""select count(*) as rows, min(_batch) as first, max(_batch) as last from t
    where array_has(broken_rules, $rule) and _batch >= $first and ($last is null or _batch <= $last)
    and ($source = '' or _topic = $source)""")


@dataclass(frozen=True)
class Selection:
    """Which of the rows that break a rule: of bronze batches from first to last (None: no end), of a source (`_topic`; empty: any)."""

    first_batch: int = 0
    last_batch: int | None = None
    source: str = ""


ALL = Selection()


@dataclass(frozen=True)
class Plan:
    """Which quarantined rows are judged again: those of the selection that break the rule, and those that are corrected."""

    rule: str
    topics: list[Topic]
    corrections: list[Correction]
    chosen: Selection = ALL


def plan(
    settings: Settings,
    rule: str,
    table: str | None,
    file: Path | None,
    given: Sequence[Correction],
    chosen: Selection = ALL,
) -> Plan:
    """What is asked for, checked whole: raises SettingsError for a rule that no table knows, no range of batches, unusable corrections.

    `given` are the corrections of `file`.
    """
    asked = [topic for topic in TOPICS if table in (None, topic.silver.name, topic.quarantine.name)]
    known = {topic.name: rule_sets.rule_names(settings, topic.name) for topic in asked}
    topics = [topic for topic in asked if rule in known[topic.name]]
    if not topics:
        names = "; ".join(f"of {topic.silver.name} {', '.join(known[topic.name])}" for topic in asked)
        raise SettingsError(f"found rule {rule!r}, expected one of these: {names}")
    if chosen.last_batch is not None and chosen.last_batch < chosen.first_batch:
        raise SettingsError(f"found batches {chosen.first_batch} to {chosen.last_batch}, expected a first one that is not after the last")
    if file:
        corrections.refuse_unusable(settings, file, given, [(topic.bronze, topic.silver, topic.quarantine) for topic in topics])
    return Plan(rule, topics, list(given), chosen)


def tell(settings: Settings, plan: Plan, corrections_given: int) -> None:
    """Log how many rows of each table a re-drive would judge again, and from which batches; writes nothing."""
    chosen = plan.chosen
    words = {"rule": sql_text(plan.rule), "first": chosen.first_batch, "last": "null" if chosen.last_batch is None else chosen.last_batch}
    sql = _CHOSEN.substitute(words, source=sql_text(chosen.source))
    for topic in plan.topics:
        found = (
            control.query(topic.quarantine.open(settings), sql, topic.quarantine).to_pylist()[0]
            if topic.quarantine.exists(settings)
            else {"rows": 0}
        )
        batches = f", first in batch {found['first']}, last in {found['last']}" if found["rows"] else ""
        log.info(
            "dry run: %s: %s rows break %s%s: they would be judged again", topic.quarantine.name, f"{found['rows']:,}", plan.rule, batches
        )
    if corrections_given:
        log.info("dry run: %d corrections would be checked and recorded, and their rows judged again, too", corrections_given)
    log.info("dry run: nothing was changed")
