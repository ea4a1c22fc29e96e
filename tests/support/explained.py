"""The lake of the tests of `run explain`, made by the jobs: a release, and what came after it."""

import json

from pyspark.sql import SparkSession

from spark_jobs.control import corrections
from spark_jobs.gold import job as gold
from spark_jobs.lake import tables
from spark_jobs.reprocessing import redrive, redrive_plan
from spark_jobs.runtime.settings import Settings
from tests.support import lake, publishing
from tests.support.frames import at
from tests.support.rows import Record, message

C1, C2 = "C00000001", "C00000002"
A1, A2 = "A00000001", "A00000002"


def transaction(id_: str, time: str, kind: str, amount: float, **fields: str) -> Record:
    return message("transactions", transactionId=id_, eventTime=round(at(time).timestamp() * 1000), type=kind, amount=amount, **fields)


FIRST = [
    transaction("T1", "2013-01-01 10:00", "Debit", 10),
    transaction("T2", "2013-01-01 10:30", "Credit", 60000),
    transaction("T3", "2013-01-01 10:03", "Debit", 5, customerId=C2, accountId=A2),
    transaction("T4", "2013-01-02 09:00", "Credit", 1.5),
    transaction("T5", "2013-01-01 10:31", "Transfer", 7),
]
SECOND = [
    transaction("T1", "2013-01-01 10:00", "Debit", 10),
    transaction("T3", "2013-01-01 10:03", "Debit", 6, customerId=C2, accountId=A2),
    transaction("T6", "2013-01-01 09:59:30", "Debit", 0.25),
]
BEFORE = round(at("2012-12-31").timestamp() * 1000)


def make(spark: SparkSession, settings: Settings) -> int:
    """A batch, gold and a release, whose number is returned; then a second batch, and gold once more.

    The second one brings a late row, duplicates, and first versions of the second customer and account; a row of the first one is
    corrected and leaves quarantine.
    """
    tables.ensure_tables(settings, (*tables.SILVER, *tables.GOLD, *tables.CONTROL))
    lake.arrive(settings, "customers", 1, [message("customers")])
    lake.arrive(settings, "accounts", 1, [message("accounts")])
    lake.arrive(settings, "transactions", 1, FIRST)
    lake.run_silver(spark, settings, "silver-1")
    gold.run(spark, settings, "gold-1")
    release = publishing.publish(settings, last_batch=1)
    _, customer = message("customers", customerId=C2, fullName="Bob B. Jones", city="Rye", updateTime=BEFORE)
    _, account = message("accounts", accountId=A2, districtId=7, updateTime=BEFORE)
    lake.arrive(settings, "customers", 2, [(C2.encode(), customer)])
    lake.arrive(settings, "accounts", 2, [(A2.encode(), account)])
    lake.arrive(settings, "transactions", 2, SECOND)
    lake.run_silver(spark, settings, "silver-2")
    (refused,) = lake.rows_of(settings, tables.TRANSACTIONS_QUARANTINE)
    place = {"topic": refused["_topic"], "partition": refused["_partition"], "offset": refused["_offset"]}
    value = json.dumps(json.loads(refused["value"]) | {"type": "Debit"})
    file = settings.home / "corrections.jsonl"
    file.write_text(json.dumps({**place, "value": value, "who": "Ada", "why": "typed wrong"}))
    redrive.run(spark, settings, redrive_plan.plan(settings, "type_known", None, file, corrections.read_file(file)), "redrive-1")
    gold.run(spark, settings, "gold-2")
    return release
