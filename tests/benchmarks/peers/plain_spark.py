"""`python -m tests.benchmarks.peers.plain_spark WHAT HOME BOOTSTRAP`: plain PySpark with Delta, as a tutorial writes it.

noop: Kafka to nothing, the most that Spark can read. delta: Kafka to Delta, as it comes. parse: Kafka, a typed `from_json` of the
transactions, Delta. silver: what silver does, on bronze of a home: the same `from_json`, the first of each id by a window, bad rows
apart, of transactions only. The session has Spark's own settings. None keeps rules, counts, histories, late rows or an index of ids, and
all take JSON that silver refuses.
"""

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession, Window, functions as F

from spark_jobs.lake import tables
from spark_jobs.lake.topics import BY_TOPIC, transactions
from spark_jobs.runtime.session import JARS
from spark_jobs.runtime.settings import read_settings
from tests.benchmarks.history import environment

FIELDS = (
    "transactionId string, accountId string, customerId string, eventTime bigint, type string, operation string, "
    "amount decimal(18,2), balance decimal(18,2)"
)
TRANSACTIONS = transactions.TOPIC.name


def main() -> None:
    """Run one of them; what it writes is in the folder `peer` of the home."""
    what, home, bootstrap = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    spark = start_plain_session(home)
    if what == "silver":
        write_silver(spark, home)
    elif what == "parse":
        write_stream(parse(read_kafka(spark, bootstrap, TRANSACTIONS)).select("json.*"), "delta", home)
    else:
        write_stream(read_kafka(spark, bootstrap, ",".join(BY_TOPIC)), what, home)
    spark.stop()


def start_plain_session(home: Path) -> SparkSession:
    """A session that knows Delta and Kafka, on all cores, with the memory that Spark takes by itself: 1 GB."""
    conf: dict[str, bool | float | int | str | None] = {
        "spark.driver.extraClassPath": f"{JARS}/*",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.local.dir": str(home / "spark"),
    }
    return SparkSession.builder.appName("peer").master("local[*]").config(map=conf).getOrCreate()


def read_kafka(spark: SparkSession, bootstrap: str, topics: str) -> DataFrame:
    """All that some topics have now."""
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topics, "startingOffsets": "earliest"}
    return spark.readStream.format("kafka").options(**options).load()


def write_stream(rows: DataFrame, kind: str, home: Path) -> None:
    """Write what is there to a new Delta table, or to nothing."""
    writer = rows.writeStream.format(kind).option("checkpointLocation", str(home / "peer" / "checkpoint"))
    writer.trigger(availableNow=True).start(str(home / "peer" / "rows")).awaitTermination()


def parse(messages: DataFrame) -> DataFrame:
    """The fields of each value, as the struct `json`."""
    return messages.withColumn("json", F.from_json(F.col("value").cast("string"), FIELDS))


def write_silver(spark: SparkSession, home: Path) -> None:
    """Three tables from bronze."""
    bronze = spark.read.format("delta").load(str(tables.BRONZE_TRANSACTIONS.path(read_settings(environment(home)))))
    parsed = parse(bronze).select("json.*", "key", "value", *tables.ARRIVAL)
    parsed = parsed.withColumn("is_good", F.col("transactionId").isNotNull() & F.col("amount").isNotNull() & F.col("eventTime").isNotNull())
    by_id = Window.partitionBy("transactionId").orderBy(*tables.ARRIVAL)
    good = parsed.where("is_good").withColumn("place", F.row_number().over(by_id)).drop("is_good", "key", "value")
    for name, rows in (
        ("transactions", good.where("place = 1")),
        ("duplicates", good.where("place > 1")),
        ("bad", parsed.where("not is_good").select("key", "value", *tables.ARRIVAL)),
    ):
        rows.write.format("delta").save(str(home / "peer" / name))


if __name__ == "__main__":
    main()
