"""Settings that are refused at the start, before anything is written."""

import json
import re
from pathlib import Path

import pytest

from spark_jobs import run
from spark_jobs.runtime import session
from spark_jobs.runtime.errors import SettingsError
from spark_jobs.runtime.settings import cluster_secret, endpoints_file, read_settings

SHARED = {"LEDGER_HOSTS": "several", "LEDGER_POSTGRES_URL": "postgresql://ledger@db/ledger"}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("LEDGER_HOME", "the path of a local folder"),
        ("LEDGER_WAREHOUSE", "a path, or s3a://bucket/folder"),
        ("LEDGER_CHECKPOINTS", "a path, or s3a://bucket/folder"),
    ],
)
@pytest.mark.parametrize(
    "place", ["s3:/bucket", "s3://bucket/lake", "hdfs://name:8020/lake", "file:///srv/lake", "file:/srv/lake", "abfss://c@a/x"]
)
def test_a_place_that_no_table_can_be_in_is_refused(name: str, expected: str, place: str) -> None:
    with pytest.raises(SettingsError, match=f"{name}: found '{place}', expected {expected}"):
        read_settings({name: place})


@pytest.mark.parametrize("place", ["s3a://bucket", "s3a://bucket/a b", "s3a://bucket/a%20b", "s3a:///lake", "s3a://bucket/lake?x=1"])
def test_an_address_in_object_storage_has_a_bucket_and_a_folder_of_plain_letters(place: str) -> None:
    with pytest.raises(SettingsError, match=r"LEDGER_WAREHOUSE: found '.*', expected s3a://bucket/folder, in letters, digits"):
        read_settings({"LEDGER_WAREHOUSE": place, **SHARED})


def test_a_warehouse_in_object_storage_needs_leases_that_hosts_share() -> None:
    with pytest.raises(SettingsError, match=r"LEDGER_HOSTS: found one and s3a://bucket/lake, expected several"):
        read_settings({"LEDGER_WAREHOUSE": "s3a://bucket/lake"})


def test_a_home_is_on_a_disk() -> None:
    with pytest.raises(SettingsError, match="LEDGER_HOME: found 's3a://bucket/lake', expected the path of a local folder"):
        read_settings({"LEDGER_HOME": "s3a://bucket/lake"})


def test_what_concerns_runs_stays_on_a_disk(tmp_path: Path) -> None:
    """Sockets, locks and output cannot be objects."""
    settings = read_settings({"LEDGER_HOME": str(tmp_path), "LEDGER_CHECKPOINTS": "s3a://bucket/lake/checkpoints", **SHARED})
    assert str(settings.checkpoints / "live") == "s3a://bucket/lake/checkpoints/live"
    assert settings.run_folder == tmp_path / "checkpoints"
    assert read_settings({"LEDGER_CHECKPOINTS": str(tmp_path / "other")}).run_folder == tmp_path / "other"


@pytest.mark.parametrize("character", ["%", "[", "]"])
def test_a_folder_that_no_table_can_be_written_to_is_refused(character: str) -> None:
    with pytest.raises(SettingsError, match=rf"LEDGER_HOME: found '.*', expected a path without {re.escape(character)}"):
        read_settings({"LEDGER_HOME": f"/srv/a{character}b"})


def test_a_key_within_an_address_is_not_repeated() -> None:
    with pytest.raises(SettingsError) as raised:
        read_settings({"LEDGER_WAREHOUSE": "s3a://AKIA:canary@bucket/lake", **SHARED})
    assert "canary" not in str(raised.value)


def test_a_job_with_such_a_place_ends_with_exit_code_2_and_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("LEDGER_WAREHOUSE", "hdfs://name:8020/lake")
    assert run.main(["silver"]) == 2
    assert [record.levelname for record in caplog.records] == ["ERROR"]


def test_no_part_of_a_password_is_in_a_message() -> None:
    with pytest.raises(SettingsError, match=r"found 'mysql://ann:\*\*\*@db/x'") as raised:
        read_settings({"LEDGER_POSTGRES_URL": "mysql://ann:can@ary@db/x?password=canary"})
    assert "ary" not in str(raised.value)


def test_colons_are_fine_where_they_begin_no_url(tmp_path_factory: pytest.TempPathFactory) -> None:
    home = tmp_path_factory.mktemp("a:b")
    assert read_settings({"LEDGER_HOME": str(home)}).home == home


def test_a_standalone_cluster_needs_its_secret() -> None:
    address = {"LEDGER_SPARK_MASTER": "spark://master:7077"}
    with pytest.raises(SettingsError, match="found 'spark://master:7077' and no _SPARK_AUTH_SECRET, expected the secret of that cluster"):
        read_settings(address)
    assert read_settings({**address, "_SPARK_AUTH_SECRET": "canary"}).spark_master == "spark://master:7077"
    assert "canary" not in repr(read_settings({**address, "_SPARK_AUTH_SECRET": "canary"}))


def test_the_cluster_of_the_stack_is_the_master_and_its_secret_lies_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("canary")
    endpoints_file(tmp_path).parent.mkdir(parents=True)
    endpoints_file(tmp_path).write_text(json.dumps({"spark_master": "spark://127.0.0.1:7077", "spark_secret_file": f"{tmp_path}/secret"}))
    home = {"LEDGER_HOME": str(tmp_path)}
    found = read_settings(home)
    assert found.spark_master == "spark://127.0.0.1:7077"
    assert cluster_secret(found, {}) == "canary"
    assert cluster_secret(found, {"_SPARK_AUTH_SECRET": "another"}) == "another"
    assert read_settings({**home, "LEDGER_SPARK_MASTER": "local[2]"}).spark_master == "local[2]"
    with pytest.raises(SettingsError, match="no _SPARK_AUTH_SECRET"):
        read_settings({**home, "LEDGER_SPARK_MASTER": "spark://elsewhere:7077"})


@pytest.mark.parametrize("place", ["warehouse", "checkpoints"])
def test_streams_write_checkpoints_by_what_fits_the_place_of_these(place: str, tmp_path: Path) -> None:
    """On a disk by a rename; objects whole, because a renamed one would be copied. Either place needs the jars for S3."""
    settings = read_settings({"LEDGER_HOME": str(tmp_path), f"LEDGER_{place.upper()}": "s3a://bucket/lake", **SHARED})
    conf = session.submit_conf(settings)
    manager = {"warehouse": session.CHECKPOINT_FILES, "checkpoints": session.REMOTE_CHECKPOINT_FILES}[place]
    assert conf["spark.sql.streaming.checkpointFileManagerClass"] == manager
    assert "hadoop-aws" in conf["spark.jars"]


def test_only_a_local_master_takes_jars_from_where_they_lie(tmp_path: Path) -> None:
    home = {"LEDGER_HOME": str(tmp_path), "LEDGER_WAREHOUSE": "s3a://bucket/lake", **SHARED}
    for master, is_local in (("local[2]", True), ("k8s://127.0.0.1:6443", False)):
        jars = session.submit_conf(read_settings({**home, "LEDGER_SPARK_MASTER": master}))["spark.jars"].split(",")
        assert {jar.startswith("local:/") for jar in jars} == {is_local}
