"""Maintenance beside releases: gates judge nothing anew, no reader misses a row, and what no release names any more goes."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from include.reader import ReleaseReader, open_release
from spark_jobs import control
from spark_jobs.control import scope
from spark_jobs.lake import tables
from spark_jobs.lake.tables import DAILY_TOTALS, LAYERS, SILVER_TRANSACTIONS
from spark_jobs.maintenance import job as maintenance, table_maintenance
from spark_jobs.maintenance.table_maintenance import Report
from spark_jobs.releases import archive, releases
from spark_jobs.runtime.settings import Settings, read_settings
from tests.support.aging import age, data_files, follow
from tests.support.publishing import EVERY_TABLE, gold_follows, one_more, publish, released_on
from tests.support.warehouse import good_rows, run_of, write

pytestmark = pytest.mark.spark


def everything(reader: ReleaseReader) -> dict[str, list[str]]:
    """All rows of all tables of a release."""
    return {name: sorted(map(str, reader.sql(f"select * from {name}").to_pylist())) for name in reader.tables}


def tend(spark: SparkSession, settings: Settings) -> dict[str, Report]:
    reports = maintenance.run(settings, tables.EVERY, lambda: spark, who="test", wait_seconds=0)
    return {report.table: report for report in reports}


def gold_took_all(settings: Settings) -> None:
    heads = {silver: DeltaTable(str(silver.path(settings))).version() for silver in tables.FOLLOWERS}
    follow(settings, heads[SILVER_TRANSACTIONS])
    for silver, gold in ((tables.SILVER_CUSTOMERS, tables.ENRICHED_TRANSACTIONS), (tables.SILVER_ACCOUNTS, tables.DISTRICT_MINUTES)):
        follow(settings, heads[silver], f"gold {silver.name}", gold)


def rows(settings: Settings) -> int:
    return int(
        control.query(DeltaTable(str(SILVER_TRANSACTIONS.path(settings))), "select count(transaction_id) as n from t")["n"][0].as_py()
    )


def test_releases_outlive_maintenance(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Release 1 expires in between and is kept; release 2 is the newest, though it is older than files stay; batch 4 waits for one."""
    settings = read_settings({"LEDGER_HOME": str(tmp_path)})
    write(settings, good_rows())
    tables.ensure_tables(settings, tables.EVERY)
    released_on(settings, datetime.now(UTC) - timedelta(days=60))
    archive.copy_release(settings, 1)
    one_more(settings, 3)
    gold_follows(settings, 3)
    write(settings, {"control.batches": [run_of("gold", table.name, 3, 3) for table in tables.GOLD]})
    gold_took_all(settings)
    assert publish(settings, last_batch=3) == 2
    first, second = everything(open_release(settings, 1)), everything(open_release(settings, 2))
    released = releases.find_release(settings, 2).versions

    joined = {name: report.files for name, report in tend(spark, settings).items() if report.joined}
    assert joined == {"bronze.transactions": (3, 1), "silver.transactions": (2, 1)}
    assert DeltaTable(str(SILVER_TRANSACTIONS.path(settings))).version() == released["silver.transactions"] + 1
    assert not releases.has_unreleased_batches(settings)
    for layer in LAYERS:
        to_judge, unchanged = scope.find_written(settings, layer)
        assert (to_judge, len(unchanged)) == ([], len(LAYERS[layer]))
    assert releases.publish(settings) == 2

    one_more(settings, 4)
    assert releases.has_unreleased_batches(settings)
    for table in EVERY_TABLE:
        age(settings, table, days=40)
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]
    before = data_files(settings, DAILY_TOTALS)
    monkeypatch.setattr(table_maintenance, "utc_now", lambda: datetime.now(UTC) + timedelta(days=9))  # since release 2
    reports = tend(spark, settings)
    assert reports["silver.transactions"].waits == (
        f"no file is removed before gold has taken version {released['silver.transactions'] + 2}, "
        "which is older than files are kept: run gold"
    )
    assert reports["gold.daily_totals"].removed_files == len(before - data_files(settings, DAILY_TOTALS)) == 1  # of release 1
    gold_took_all(settings)
    assert tend(spark, settings)["silver.transactions"].removed_files == 0  # the newest release names what was joined since
    assert (everything(open_release(settings, 1)), everything(open_release(settings, 2))) == (first, second)
    assert rows(settings) == 6

    DeltaTable(str(SILVER_TRANSACTIONS.path(settings))).restore(released["silver.transactions"])  # as a roll-back does
    assert rows(settings) == 5
