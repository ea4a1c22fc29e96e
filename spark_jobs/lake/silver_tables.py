"""Bronze's and silver's tables, declared. Columns are `name type` pairs in the words of Spark's DDL; nullable, unless `not null`."""

from spark_jobs.lake.table import Table

ARRIVAL = ("_batch", "_topic", "_partition", "_offset")  # the order of arrival
COORDINATES = "_topic string, _partition int, _offset bigint, _batch bigint"
_CHANGE_FEED = {"delta.enableChangeDataFeed": "true"}
COORDINATE_KEYS = ("_topic", "_partition", "_offset")


def _bronze(topic: str) -> Table:
    return Table(
        f"bronze.{topic}",
        """key binary, value binary, headers array<struct<key:string,value:binary>>, _topic string, _partition int, _offset bigint,
        _timestamp timestamp, _batch bigint, _ingested_at timestamp, _ingested_on date""",
        keys=COORDINATE_KEYS,
        partitioned_by=("_ingested_on",),
        time_column="_timestamp",
        topic=topic,
    )


def _quarantine(topic: str) -> Table:
    return Table(
        f"silver.{topic}_quarantine",
        f"key binary, value binary, broken_rules array<string>, detail string, {COORDINATES}",
        keys=COORDINATE_KEYS,
        topic=topic,
    )


BRONZE_TRANSACTIONS = _bronze("transactions")
BRONZE_CUSTOMERS = _bronze("customers")
BRONZE_ACCOUNTS = _bronze("accounts")

TRANSACTION = """transaction_id string, account_id string, customer_id string, event_at timestamp, event_on date, type string,
    operation string, amount decimal(18,2), balance decimal(18,2)"""
SILVER_TRANSACTIONS = Table(
    "silver.transactions",
    f"{TRANSACTION}, {COORDINATES}",
    keys=("transaction_id",),
    properties=_CHANGE_FEED,
    time_column="event_at",
    topic="transactions",
)
TRANSACTIONS_DUPLICATES = Table(
    "silver.transactions_duplicates",
    f"transaction_id string, is_conflicting boolean, first_topic string, first_partition int, first_offset bigint, {COORDINATES}",
    keys=COORDINATE_KEYS,
    topic="transactions",
)
TRANSACTIONS_LATE = Table(
    "silver.transactions_late",
    f"transaction_id string, event_at timestamp, watermark_at timestamp, late_by_seconds decimal(18,3), {COORDINATES}",
    keys=COORDINATE_KEYS,
    time_column="event_at",
    topic="transactions",
)
# Where the row of each id is, so that looking for duplicates reads nothing else that grows.
TRANSACTION_IDS = Table("silver.transaction_ids", "id_hash bigint, _partition int, _offset bigint", topic="transactions")
TRANSACTIONS_QUARANTINE = _quarantine("transactions")
CUSTOMERS_QUARANTINE = _quarantine("customers")
ACCOUNTS_QUARANTINE = _quarantine("accounts")

_VALIDITY = "valid_from timestamp, valid_to timestamp, is_current boolean, is_deleted boolean"
SILVER_CUSTOMERS = Table(
    "silver.customers",
    f"""customer_id string, sex string, social string, full_name string, phone string, email string, address1 string, address2 string,
    city string, state string, zipcode string, district_id int, birth_date date, {_VALIDITY}, {COORDINATES}""",
    keys=("customer_id", "valid_from"),
    properties=_CHANGE_FEED,
    time_column="valid_from",
    topic="customers",
)
SILVER_ACCOUNTS = Table(
    "silver.accounts",
    f"account_id string, district_id int, frequency string, creation_date date, {_VALIDITY}, {COORDINATES}",
    keys=("account_id", "valid_from"),
    properties=_CHANGE_FEED,
    time_column="valid_from",
    topic="accounts",
)
