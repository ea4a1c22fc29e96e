"""Silver's tables from judged bronze rows, in SQL over all of them. Pure: frames in, frames out."""

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.audit.queries import ARRIVAL, query
from spark_jobs.lake.kept import kept
from spark_jobs.lake.topic import Topic

_VALID = """
    select *, first(struct($arrival)) over earlier as first_place, first(struct($content)) over earlier as first_content
    from {judged} where size(broken_rules) = 0
    window earlier as (partition by $key order by $arrival)"""
_FIRST = """
    select $key, $content, $arrival from {valid} where first_place = struct($arrival)"""
_DUPLICATES = """
    select $key, not (struct($content) <=> first_content) as is_conflicting,
        first_place._topic as first_topic, first_place._partition as first_partition, first_place._offset as first_offset, $arrival
    from {valid} where first_place <> struct($arrival)"""
_LATE = """
    with newest as (select _batch, max(event_at) as newest from {valid} group by _batch),
    marks as (
        select _batch as of_batch,
            max(newest) over (order by _batch rows between unbounded preceding and 1 preceding)
                - make_dt_interval(0, 0, 0, {lateness}) as watermark_at
        from newest)
    select $key, event_at, watermark_at,
        cast(cast(unix_micros(watermark_at) - unix_micros(event_at) as decimal(20,0)) * 0.000001 as decimal(18,3)) as late_by_seconds,
        $arrival
    from {first} join marks on _batch = of_batch
    where event_at < watermark_at"""
_QUARANTINE = "select key, value, broken_rules, detail, $arrival from {judged} where size(broken_rules) > 0"
# Per key and time the last arrival stays. Of neighbours in time that say the same the first is a version; a deletion of nothing is none.
_VERSIONS = """
    with ranked as (
        select *, row_number() over (partition by $key, valid_from order by $last_arrival_first) as rank
        from {judged} where size(broken_rules) = 0),
    compared as (
        select *, struct($content) as now, lag(struct($content)) over (partition by $key order by valid_from) as before
        from ranked where rank = 1),
    versions as (
        select *, lead(valid_from) over (partition by $key order by valid_from) as valid_to
        from compared where not (now <=> before) and not (before is null and is_deleted))
    select $key, $content, valid_from, valid_to, valid_to is null as is_current, $arrival from versions"""
_ASIDE = ("key", "value", "detail", "broken_rules")


def tables_of(spark: SparkSession, judged: DataFrame, topic: Topic, lateness_seconds: int) -> dict[str, DataFrame]:
    """The silver table of a topic and the tables beside it, by name. `judged` is what `judged_rows` gives; it is read more than once.

    Its first column is the key; the other typed ones are the content, by which two records of a key differ.
    """
    key, *content = (name for name in judged.columns if name not in (*_ASIDE, *ARRIVAL, "valid_from"))
    words = {"key": key, "content": ", ".join(content)}
    quarantine = query(spark, _QUARANTINE, judged=judged)
    if topic.has_versions:
        return {topic.silver.name: query(spark, _VERSIONS, words, judged=judged).transform(kept), topic.quarantine.name: quarantine}
    valid = query(spark, _VALID, words, judged=judged).transform(kept)
    first = query(spark, _FIRST, words, valid=valid).transform(kept)
    return {
        topic.silver.name: first,
        topic.duplicates.name: query(spark, _DUPLICATES, words, valid=valid),
        topic.quarantine.name: quarantine,
        topic.late.name: query(spark, _LATE, words, valid=valid, first=first, lateness=lateness_seconds),
    }
