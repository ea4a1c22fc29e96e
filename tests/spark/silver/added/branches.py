"""The topic branches: how each branch of the bank is, from a time on."""

from spark_jobs.lake.topic import Field, Topic, Versions

TOPIC = Topic(
    "branches",
    (Field("branchId"), Field("city"), Field("employees", "int"), Field("openedDate", "date"), Field("updateTime", "timestamp")),
    Versions(key="branchId", time="updateTime"),
)
