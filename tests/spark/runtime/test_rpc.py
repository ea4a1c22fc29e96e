"""Spark's own ports: nobody who does not know the secret is answered, and nothing that he sends is deserialised."""

import psutil
import pytest
from pyspark.sql import SparkSession

from spark_jobs.runtime.session import RPC, jvm_of
from spark_jobs.runtime.settings import ROOT
from tests.support.wire import is_answered


@pytest.mark.parametrize("endpoint", ["endpoint-verifier", "BlockManagerMaster"])
def test_the_driver_answers_nobody_without_the_secret(spark: SparkSession, endpoint: str) -> None:
    assert not is_answered("127.0.0.1", int(spark.conf.get("spark.driver.port") or 0), endpoint)


def test_the_driver_listens_on_loopback_only(spark: SparkSession) -> None:
    listening = [each.laddr.ip for each in psutil.Process(jvm_of(spark)).net_connections("tcp") if each.status == psutil.CONN_LISTEN]
    assert listening
    assert {address.removeprefix("::ffff:") for address in listening} == {"127.0.0.1"}


def test_the_secret_is_drawn_by_spark_and_in_no_setting(spark: SparkSession) -> None:
    found = dict(spark.sparkContext.getConf().getAll())
    assert found.items() >= RPC.items()
    assert [name for name in found if "secret" in name] == []


def test_a_cluster_is_set_as_its_drivers_are() -> None:
    lines = (ROOT / "include/spark/cluster.conf").read_text().splitlines()
    assert dict(line.split() for line in lines if line and not line.startswith("#")).items() >= RPC.items()
