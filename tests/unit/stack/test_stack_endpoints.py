"""What the stack remembers of a home: ports, secrets, addresses."""

import socket
from pathlib import Path

import pytest

from include.stack.endpoints import (
    HOST,
    claim_port,
    home_of,
    port_is_free,
    remove_endpoints,
    secret,
    set_outside,
    write_endpoints,
)
from include.stack.lifecycle import up
from include.stack.processes import find_all
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.masking import mask_url
from spark_jobs.runtime.settings import ROOT, read_endpoints, read_settings


@pytest.mark.parametrize(
    ("environ", "home"), [({}, ROOT / ".ledger"), ({"LEDGER_HOME": " "}, ROOT / ".ledger"), ({"LEDGER_HOME": "/x"}, Path("/x"))]
)
def test_home_is_the_one_of_the_settings(environ: dict[str, str], home: Path) -> None:
    assert home_of(environ) == home == read_settings(environ).home


def test_a_home_is_found_when_another_setting_is_bad() -> None:
    assert home_of({"LEDGER_HOME": "/x", "LEDGER_AIRFLOW_PORT": "many"}) == Path("/x")


def test_a_port_is_remembered_until_another_takes_it(tmp_path: Path) -> None:
    first = claim_port(tmp_path, "kafka")
    assert claim_port(tmp_path, "kafka") == first
    with socket.socket() as other:
        other.bind((HOST, first))
        other.listen()
        assert not port_is_free(first)
        assert claim_port(tmp_path, "kafka") != first


def test_a_wished_port_wins_and_listeners_differ(tmp_path: Path) -> None:
    assert claim_port(tmp_path, "airflow", wished=18181) == 18181
    assert claim_port(tmp_path, "airflow") == 18181
    assert claim_port(tmp_path, "postgres") != 18181


def test_a_secret_is_made_once_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "password"
    first = secret(file)
    assert len(first) >= 24
    assert secret(file) == first == file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600


def test_jobs_find_the_addresses_until_they_are_removed(tmp_path: Path) -> None:
    write_endpoints(tmp_path, {"kafka_bootstrap": "127.0.0.1:19092"})
    assert read_settings({"LEDGER_HOME": str(tmp_path)}).kafka_bootstrap == "127.0.0.1:19092"
    remove_endpoints(tmp_path)
    remove_endpoints(tmp_path)
    assert read_endpoints(tmp_path) == {}


@pytest.mark.parametrize(
    ("value", "own", "outside"),
    [("", None, None), (" ", "a:1", None), ("a:1", "a:1", None), ("b:1", "a:1", "b:1"), ("b:1", None, "b:1")],
)
def test_only_an_address_that_is_not_our_own_is_outside(value: str, own: str | None, outside: str | None) -> None:
    assert set_outside({"NAME": value}, "NAME", own) == outside


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ann:s3cret@db:5432/x", "postgresql://ann:***@db:5432/x"),
        ("postgresql://ann@db/x", "postgresql://ann@db/x"),
        ("postgresql://ann:s3@cret@db/x?password=s3cret", "postgresql://ann:***@db/x"),
        ("", ""),
    ],
)
def test_a_password_is_never_shown(url: str, shown: str) -> None:
    assert mask_url(url) == shown


def test_a_cluster_is_not_started_beside_a_master_that_jobs_were_told(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match=r"found LEDGER_SPARK_MASTER=local\[2\], expected none with a cluster of our own"):
        up({"LEDGER_HOME": str(tmp_path), "LEDGER_SPARK_MASTER": "local[2]"}, with_cluster=True)
    assert find_all(tmp_path) == []
