"""`python -m tests.benchmarks.peers.plain_spark HOME`: what silver does, in plain PySpark, as a tutorial writes it.

A typed `from_json`, the first of each id by a window, bad rows apart, Delta; of transactions only. It keeps no rules, counts, histories,
late rows or index of ids, and takes JSON that silver refuses.
"""

import sys
from pathlib import Path

from pyspark.sql import Window, functions as F

from spark_jobs.lake import tables
from spark_jobs.runtime.session import start_session
from spark_jobs.runtime.settings import read_settings
from tests.benchmarks.history import environment

FIELDS = (
    "transactionId string, accountId string, customerId string, eventTime bigint, type string, operation string, "
    "amount decimal(18,2), balance decimal(18,2)"
)


def main() -> None:
    """Read bronze of a home, and write three tables to its folder `peer`."""
    home = Path(sys.argv[1])
    settings = read_settings(environment(home))
    spark = start_session(settings, "peer")
    bronze = spark.read.format("delta").load(str(tables.BRONZE_TRANSACTIONS.path(settings)))
    parsed = bronze.withColumn("json", F.from_json(F.col("value").cast("string"), FIELDS)).select("json.*", "key", "value", *tables.ARRIVAL)
    parsed = parsed.withColumn("is_good", F.col("transactionId").isNotNull() & F.col("amount").isNotNull() & F.col("eventTime").isNotNull())
    by_id = Window.partitionBy("transactionId").orderBy(*tables.ARRIVAL)
    good = parsed.where("is_good").withColumn("place", F.row_number().over(by_id)).drop("is_good", "key", "value")
    for name, rows in (
        ("transactions", good.where("place = 1")),
        ("duplicates", good.where("place > 1")),
        ("bad", parsed.where("not is_good").select("key", "value", *tables.ARRIVAL)),
    ):
        rows.write.format("delta").save(str(home / "peer" / name))
    spark.stop()


if __name__ == "__main__":
    main()
