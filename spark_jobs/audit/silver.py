"""Silver's tables from judged bronze rows, in SQL over all of them. Pure: frames in, frames out."""

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.audit.queries import query

_VALID = """
    select *, first(struct($arrival)) over earlier as first_place, first(struct($content)) over earlier as first_content
    from {judged} where size(broken_rules) = 0
    window earlier as (partition by transaction_id order by $arrival)"""
_FIRST = """
    select transaction_id, account_id, customer_id, event_at, event_on, type, operation, amount, balance, $arrival
    from {valid} where first_place = struct($arrival)"""
_DUPLICATES = """
    select transaction_id, not (struct($content) <=> first_content) as is_conflicting,
        first_place._topic as first_topic, first_place._partition as first_partition, first_place._offset as first_offset, $arrival
    from {valid} where first_place <> struct($arrival)"""
_LATE = """
    with newest as (select _batch, max(event_at) as newest from {valid} group by _batch),
    marks as (
        select _batch as of_batch,
            max(newest) over (order by _batch rows between unbounded preceding and 1 preceding)
                - make_dt_interval(0, 0, 0, {lateness}) as watermark_at
        from newest)
    select transaction_id, event_at, watermark_at,
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
        select *, struct($said, is_deleted) as now, lag(struct($said, is_deleted)) over (partition by $key order by valid_from) as before
        from ranked where rank = 1),
    versions as (
        select *, lead(valid_from) over (partition by $key order by valid_from) as valid_to
        from compared where not (now <=> before) and not (before is null and is_deleted))
    select $key, $said, valid_from, valid_to, valid_to is null as is_current, is_deleted, $arrival from versions"""
_DIMENSIONS = {
    "customers": {
        "key": "customer_id",
        "said": "sex, social, full_name, phone, email, address1, address2, city, state, zipcode, district_id, birth_date",
    },
    "accounts": {"key": "account_id", "said": "district_id, frequency, creation_date"},
}


def transactions(spark: SparkSession, judged: DataFrame, lateness_seconds: int) -> dict[str, DataFrame]:
    """silver.transactions and the tables beside it, by name. `judged` is what `judged_rows` gives; it is read more than once."""
    valid = query(spark, _VALID, judged=judged).localCheckpoint()
    first = query(spark, _FIRST, valid=valid).localCheckpoint()
    return {
        "silver.transactions": first,
        "silver.transactions_duplicates": query(spark, _DUPLICATES, valid=valid),
        "silver.transactions_quarantine": query(spark, _QUARANTINE, judged=judged),
        "silver.transactions_late": query(spark, _LATE, valid=valid, first=first, lateness=lateness_seconds),
    }


def dimension(spark: SparkSession, judged: DataFrame, topic: str) -> dict[str, DataFrame]:
    """The history of customers or accounts, and their quarantine, by name."""
    return {
        f"silver.{topic}": query(spark, _VERSIONS, _DIMENSIONS[topic], judged=judged).localCheckpoint(),
        f"silver.{topic}_quarantine": query(spark, _QUARANTINE, judged=judged),
    }
