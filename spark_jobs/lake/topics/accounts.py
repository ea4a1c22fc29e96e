"""The topic accounts: how each account is, from a time on."""

from spark_jobs.lake.topic import Field, Topic, Versions

TOPIC = Topic(
    "accounts",
    (
        Field("accountId"),
        Field("districtId", "int"),
        Field("frequency"),
        Field("creationDate", "date"),
        Field("updateTime", "timestamp"),
    ),
    Versions(key="accountId", time="updateTime"),
)
