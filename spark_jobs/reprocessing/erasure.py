"""Erasing a person: which bronze records hold the person, and bronze, silver and gold without what these said.

An emptied value is an empty one, and not null, which would be a deletion. It breaks the rule `parseable`, so the record is in quarantine
under its coordinates, and all else follows from bronze as after any other judgement. The caller holds the leases of all these tables.
"""

import json
import re
from collections.abc import Callable
from datetime import datetime
from functools import reduce
from operator import or_
from typing import Any

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession, functions as F

from expectations.wire_format import MAGIC, decode
from spark_jobs import control
from spark_jobs.control import corrections, redrives, rule_sets
from spark_jobs.control.corrections import PLACE, PLACE_DDL
from spark_jobs.control.erasures import Place, Plan
from spark_jobs.gold import job as gold
from spark_jobs.lake import few_rows, leases, purge, sinks, tables
from spark_jobs.lake.kept import kept
from spark_jobs.lake.tables import BACKFILLS, BATCHES, CORRECTIONS, FOLLOWERS, REDRIVES, Table
from spark_jobs.lake.topic import Topic
from spark_jobs.lake.topics import TOPICS
from spark_jobs.lake.txn import Txn
from spark_jobs.reprocessing import reads, rejudge
from spark_jobs.reprocessing.rejudge import Rejudged
from spark_jobs.runtime.kill_points import kill_point
from spark_jobs.runtime.settings import Settings
from spark_jobs.silver import id_index, recompute
from spark_jobs.silver.events import judge_events
from spark_jobs.silver.judge import is_valid
from spark_jobs.silver.parse import decoded
from spark_jobs.silver.records import judge_records

_APPLICATION = "erasure"
_TELLING = ("social", "fullName", "phone", "email", "address1", "address2")  # fields by which a person can be searched for
_SHORTEST = 5  # characters; a shorter value is found everywhere
_PERSONS = "customers"  # the topic whose key is the person's id
_EVENTS = "transactions"


def make_plan(spark: SparkSession, settings: Settings, erasure_id: str, customer: str, who: str, why: str) -> Plan:
    """Find the bronze records whose key or value names a customer, also in a value that is no JSON or that a correction gave.

    A record that is empty or a deletion is none of them.
    """
    named = re.compile(rf"(?<![0-9A-Za-z]){re.escape(customer)}(?![0-9A-Za-z])")
    by_topic = {topic.name: rule_sets.schemas(settings, topic.name) for topic in TOPICS}
    by_id = {schema.id: schema for known in by_topic.values() for schema in known}
    given = {place: decode(each.value, by_id) or b"" for place, each in corrections.newest(settings).items()}
    corrected = {place: value.decode(errors="replace") for place, value in given.items()}
    by_correction = spark.createDataFrame([place for place, text in corrected.items() if named.search(text)], PLACE_DDL)
    places: dict[str, list[Place]] = {}
    values: set[str] = set()
    ids: set[str] = set()
    for topic in TOPICS:
        rows = reads.read_table(spark, settings, topic.bronze).where(F.length("value") > 0)
        rows = rows.withColumn("_raw", F.col("value")).withColumn("value", decoded("value", by_topic[topic.name]))
        own = rows.where(_names(customer, named.pattern, is_key=topic.name == _PERSONS))
        own = own.unionByName(recompute.within(rows, by_correction)).dropDuplicates(PLACE)
        found = own.select(*PLACE, "key", "value").collect()
        places[topic.name] = sorted((row["_topic"], row["_partition"], row["_offset"]) for row in found)
        texts = [corrected[place] for place in places[topic.name] if place in corrected]
        said = [_fields(text) for text in [*texts, *(bytes(row["value"]).decode(errors="replace") for row in found)]]
        if topic.name == _PERSONS:
            values |= {str(fields[name]) for fields in said for name in _TELLING if len(str(fields.get(name) or "")) >= _SHORTEST}
        elif topic.name == _EVENTS:
            ids |= {str(fields["transactionId"]) for fields in said if len(str(fields.get("transactionId") or "")) >= _SHORTEST}
    return Plan(erasure_id, customer, who, why, places, sorted(values), sorted(ids))


def erase(spark: SparkSession, settings: Settings, plan: Plan, run_id: str) -> None:
    """Empty the records of a plan in bronze, bring silver and gold to what bronze says then, and write all their files again.

    May be repeated from the beginning. Corrections of these records go, too.
    """
    with sinks.configured(spark, id_index.SESSION):
        for topic in TOPICS:
            if plan.places[topic.name]:
                places = spark.createDataFrame(plan.places[topic.name], PLACE_DDL).transform(kept)
                _empty(spark, settings, topic.bronze, places)
                _bring_silver(spark, settings, topic, places)
    emptied = {place for found in plan.places.values() for place in found}
    _keep_rows(settings, CORRECTIONS, lambda row: None if (row["_topic"], row["_partition"], row["_offset"]) in emptied else row)
    _limit_newest(settings)
    for table in (*tables.BRONZE, *tables.SILVER_OWNED):
        purge.rewrite(spark, settings, table)
        purge.seal(settings, table)
    kill_point("before gold of an erasure")
    gold.run(spark, settings, run_id)
    for table in tables.GOLD:
        purge.rewrite(spark, settings, table)
    for source, followers in FOLLOWERS.items():  # what silver's commits said before is taken, and they go
        taken = Txn(control.following(settings, source), source.open(settings).version())
        for table in followers:
            few_rows.note_applied(settings, table, taken)
    for table in tables.GOLD:
        purge.seal(settings, table)


def others_values(spark: SparkSession, settings: Settings, plan: Plan) -> set[str]:
    """Which values and ids of a plan silver still holds, because they are also another person's: these prove nothing."""
    customers = reads.read_table(spark, settings, tables.SILVER_CUSTOMERS)
    held = customers.select(F.explode(F.array("social", "full_name", "phone", "email", "address1", "address2")).alias("value"))
    for table in (tables.SILVER_TRANSACTIONS, tables.TRANSACTIONS_DUPLICATES):
        held = held.union(reads.read_table(spark, settings, table).select("transaction_id"))
    wanted = spark.createDataFrame([(value,) for value in [*plan.values, *plan.ids]], "value string")
    return {row["value"] for row in held.join(wanted, on="value", how="left_semi").distinct().collect()}


def _names(customer: str, pattern: str, *, is_key: bool) -> Column:
    text, is_behind_header = F.col("value").cast("string"), F.substring("_raw", 1, 1) == MAGIC
    ways = [is_behind_header & F.contains("_raw", F.lit(customer.encode()))]  # in whatever field; what stands beside it is no sign
    ways += [text.rlike(pattern), F.get_json_object(text, "$.customerId") == customer]
    if is_key:
        ways.append(F.col("key").cast("string") == customer)
    return reduce(or_, [F.coalesce(way, F.lit(False)) for way in ways])


def _fields(text: str) -> dict[str, Any]:
    try:
        fields = json.loads(text)
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}


def _empty(spark: SparkSession, settings: Settings, bronze: Table, places: DataFrame) -> None:
    kill_point(f"before emptying {bronze.name}")
    target = DeltaTable.forPath(spark, str(bronze.path(settings))).alias("t")
    is_same = F.expr(" and ".join(f"t.{name} = s.{name}" for name in PLACE))
    with sinks.configured(spark, {sinks.METADATA: leases.commit_metadata(settings, bronze, {})}):
        target.merge(places.alias("s"), is_same).whenMatchedUpdate("length(t.value) > 0", {"value": F.lit(b"")}).execute()
    kill_point(f"after emptying {bronze.name}")


def _bring_silver(spark: SparkSession, settings: Settings, topic: Topic, places: DataFrame) -> None:
    """Judge emptied records again, as far as silver has taken them, and bring silver to it."""
    done = control.silver_batch(settings, topic.name)
    bronze = recompute.within(reads.read_table(spark, settings, topic.bronze).where(F.col("_batch") <= done), places).transform(kept)
    count, since = bronze.agg(F.count("*"), F.min("_batch")).collect()[0]
    if not count:
        return
    rows = Rejudged(spark, settings, topic, rule_sets.present(settings, topic.name), rejudge.places_of(bronze, count), since)
    judged = (judge_records if topic.has_versions else judge_events)(bronze, topic, rows.rules).transform(kept)
    changes = rejudge.changes_of(rows, judged)
    present = recompute.within(rows.read(topic.quarantine), rows.places)
    quarantine = sinks.changes_of(topic.quarantine, present, judged.where(~is_valid()))
    application = control.application(settings, _APPLICATION)
    number = redrives.last_write(settings, topic, application)
    for table, changed in [(topic.quarantine, quarantine), *changes.writes]:  # a row is in two places for a moment, and never in none
        if not changed.isEmpty():
            number += 1
            sinks.merge_changes(changed, settings, table, Txn(application, number))


def _limit_newest(settings: Settings) -> None:
    """What runs noted as the newest event so far must not come from a record that is empty now: watermarks follow from it."""
    newest: datetime | None = control.value(tables.SILVER_TRANSACTIONS.open(settings), "select max(event_at) from t")
    if newest is None:
        return

    def limited(row: dict[str, Any]) -> dict[str, Any]:
        noted = row["_newest_event_at"]
        return row | {"_newest_event_at": min(noted, newest) if noted else noted}

    for table in (BATCHES, BACKFILLS, REDRIVES):
        _keep_rows(settings, table, limited)


def _keep_rows(settings: Settings, table: Table, change: Callable[[dict[str, Any]], dict[str, Any] | None]) -> None:
    """Replace the rows of a control table by what `change` makes of each; None leaves a row out."""
    with leases.hold(settings, [table], owner="forget"):
        rows = control.read(settings, table).to_pylist()
        after = [new for row in rows if (new := change(row)) is not None]
        if after != rows:
            control.replace_under_lease(settings, table, after)


def count_by_topic(plan: Plan) -> str:
    """How many records of each topic a plan names, in one line."""
    return ", ".join(f"{topic} {len(found)}" for topic, found in plan.places.items())
