"""The topic customers: how each customer is, from a time on."""

from spark_jobs.lake.topic import Field, Topic, Versions

TOPIC = Topic(
    "customers",
    (
        *map(Field, ("customerId", "sex", "social", "fullName", "phone", "email", "address1", "address2", "city", "state", "zipcode")),
        Field("districtId", "int", is_quoted=True),
        Field("birthDate", "date"),
        Field("updateTime", "timestamp"),
    ),
    Versions(key="customerId", time="updateTime"),
)
