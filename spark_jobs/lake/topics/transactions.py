"""The topic transactions: what was paid into an account, or out of it."""

from spark_jobs.lake.topic import Events, Field, Topic

TOPIC = Topic(
    "transactions",
    (
        Field("transactionId"),
        Field("accountId"),
        Field("customerId"),
        Field("eventTime", "timestamp"),
        Field("eventTimeFormatted"),
        Field("type"),
        Field("operation", empty_is_null=True),
        Field("amount", "decimal(18,2)"),
        Field("balance", "decimal(18,2)"),
    ),
    Events(key="transactionId", time="eventTime", in_words="eventTimeFormatted"),
    partitions=5,
)
