"""The SQL parts (`$name`) by which several gold tables say how their cells are made; each table's file has the rest.

Written apart from the gold job, for DataFusion in place of Spark, so that the one is a check of the other.
"""

# What several plans say in the same words.
PARTS = {
    "count_and_sum": "count(*) as transactions, cast(sum(cast(amount as decimal(38,2))) as decimal(38,2)) as amount",
    "booked": ", ".join(
        f"cast(coalesce(sum(case when type = '{kind}' then cast(amount as decimal(38,2)) end), 0) as decimal(38,2)) as {name}"
        for kind, name in (("Credit", "credits"), ("Debit", "debits"))
    ),
    "newest_first": "event_at desc, _batch desc, _topic desc, _partition desc, _offset desc",
    "in_time": "event_at, _batch, _topic, _partition, _offset",
    "valid_then": "r.event_at >= v.valid_from and (v.valid_to is null or r.event_at < v.valid_to)",
    "micros": "arrow_cast(event_at, 'Int64')",
    "hour": "3600000000",
}
# Of a cell that is made of everything up to a day: the counts of the days stand for the rows.
DAYS = (
    "select event_on as day, count(case when type = 'Debit' then 1 end) as debits, count(case when type = 'Credit' then 1 end) as credits "
    "from of_cell group by event_on"
)
