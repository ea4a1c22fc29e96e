"""The topic card_payments: what was paid by card."""

from spark_jobs.lake.topic import Events, Field, Topic

TOPIC = Topic(
    "card_payments",
    (
        Field("paymentId"),
        Field("cardId"),
        Field("merchant", empty_is_null=True),
        Field("paidTime", "timestamp"),
        Field("bookedTime", "timestamp"),
        Field("amount", "decimal(18,2)"),
        Field("installments", "int"),
    ),
    Events(key="paymentId", time="paidTime"),
    partitions=2,
)
