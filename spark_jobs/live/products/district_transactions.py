"""gold.live_district_transactions: each accepted transaction with the district of its account, as the districts are named now."""

from pyspark.sql import DataFrame, functions as F

from spark_jobs.gold.sums import is_valid_then
from spark_jobs.lake import sources
from spark_jobs.lake.tables import DISTRICTS, LIVE_DISTRICT_TRANSACTIONS, SILVER_ACCOUNTS
from spark_jobs.live.declaration import LiveQuery
from spark_jobs.runtime.settings import Settings

MATCHED, UNKNOWN, NO_DISTRICT = "matched", "unknown", "no district"


def with_districts(transactions: DataFrame, accounts: DataFrame, districts: DataFrame, version: int) -> DataFrame:
    """Add to gold.live_transactions the district of the account's version at event_at, by `districts`, which are of this version.

    district_status is `matched`, `unknown` (`districts` does not have it; name and region are null) or `no district` (silver.accounts has
    no version at event_at, or one without a district; district_id is null, too). Every transaction comes out once.
    """
    a = accounts.select(F.col("account_id").alias("_account_id"), "district_id", "valid_from", "valid_to")
    located = transactions.join(a, on=(F.col("account_id") == F.col("_account_id")) & is_valid_then(), how="left")
    named = F.broadcast(districts.select("district_id", F.col("name").alias("district_name"), "region"))
    status = F.when(F.col("district_id").isNull(), NO_DISTRICT).when(F.col("district_name").isNull(), UNKNOWN).otherwise(MATCHED)
    columns = {"district_status": status, "districts_version": F.lit(version).cast("bigint")}
    return located.join(named, on="district_id", how="left").withColumns(columns).select(*LIVE_DISTRICT_TRANSACTIONS.columns)


def finish(rows: DataFrame, settings: Settings) -> DataFrame:
    """The rows of a batch with districts: the newest version there is when the batch begins, and no other for any of its rows."""
    version = DISTRICTS.open(settings).version()
    spark = rows.sparkSession
    districts = sources.read_table(spark, settings, DISTRICTS, version)
    return with_districts(rows, sources.read_table(spark, settings, SILVER_ACCOUNTS), districts, version)


QUERY = LiveQuery(
    LIVE_DISTRICT_TRANSACTIONS,
    lambda read: read("live_transactions"),
    {"rows": "each transaction, without state"},
    seconds=5,
    finish=finish,
)
