"""The S3 server of a home: what it is started with, when it is refused, and what the home remembers of it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from upath import UPath

from include.stack import __main__ as command, airflow, cluster, s3
from include.stack.endpoints import write_endpoints
from include.stack.lifecycle import forget_addresses, up
from include.stack.processes import Running, find_all
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.settings import read_endpoints, read_settings

Call = tuple[list[str], dict[str, str]]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def switch_on(home: Path) -> None:
    """As if the server had come up once."""
    s3.environment(home)
    (home / "stack/s3").mkdir(parents=True, exist_ok=True)
    (home / "stack/s3/.on").touch()


@pytest.fixture
def started(home: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    calls: list[Call] = []

    def start(_home: Path, part: str, words: list[str], environment: dict[str, str], log: Path) -> Running:
        calls.append((words, environment))
        return cast(Running, None)

    monkeypatch.setattr(s3, "start", start)
    s3.launch(home)
    return calls[0]


def test_no_secret_is_in_the_words_of_a_process_and_only_the_owner_reads_the_files(home: Path, started: Call) -> None:
    words, _ = started
    keys = json.loads(s3.keys_file(home).read_text())
    files = [file for file in (home / "stack/s3").iterdir() if file.is_file()]
    assert {file.name for file in files} == {"keys.json", "tokens.json", "identities.json"}
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in files)
    assert sorted(keys) == ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"]
    assert not [word for word in words if any(key in word for key in keys.values())]


def test_the_servers_accept_the_tokens_of_this_home_alone(started: Call) -> None:
    _, environment = started
    tokens = [text for name, text in environment.items() if name.startswith("WEED_JWT_")]
    assert len(set(tokens)) == 4
    assert all(len(token) >= 32 for token in tokens)


def test_every_listener_has_a_port_of_its_own_on_loopback_or_is_off(started: Call) -> None:
    words, _ = started
    ports = {name: words[words.index(f"-{name}") + 1] for name in (*s3.LISTENERS.values(), "s3.port.iceberg", "s3.port.lance")}
    assert (ports.pop("s3.port.iceberg"), ports.pop("s3.port.lance")) == ("0", "0")
    assert len(set(ports.values())) == 8
    assert [words[words.index(name) + 1] for name in ("-ip", "-ip.bind", "-s3.ip.bind")] == ["127.0.0.1"] * 3
    assert {"-disableHttp", "-filer.disableHttp", "-master.telemetry=false"} <= set(words)


def test_it_is_not_started_beside_tables_on_disk(home: Path) -> None:
    table = home / "warehouse/bronze/transactions"
    (table / "_delta_log").mkdir(parents=True)
    with pytest.raises(LedgerError, match=f"found the table {table}, expected no warehouse on disk .*: choose a new LEDGER_HOME"):
        up({"LEDGER_HOME": str(home)}, with_s3=True)
    assert find_all(home) == []
    switch_on(home)  # such a home has its tables in S3: what lies on disk is of no matter
    s3.refuse_other_storage({}, home)


@pytest.mark.parametrize(("name", "value"), [("LEDGER_WAREHOUSE", "/srv/warehouse"), ("AWS_ENDPOINT_URL", "https://s3.example.org")])
def test_it_is_not_started_beside_another_place_that_jobs_were_told(home: Path, name: str, value: str) -> None:
    with pytest.raises(LedgerError, match=f"found {name}={value}, expected none with an S3 server of our own"):
        up({"LEDGER_HOME": str(home), name: value}, with_s3=True)
    assert find_all(home) == []


def test_its_own_places_may_be_named(home: Path, started: Call) -> None:
    s3.refuse_other_storage({"LEDGER_WAREHOUSE": "s3a://ledger/warehouse", "AWS_ENDPOINT_URL": s3.own_url(home) or ""}, home)


def test_a_home_that_is_down_remembers_that_its_tables_are_in_s3(home: Path, started: Call) -> None:
    switch_on(home)
    postgres = {"postgres_url": "postgresql://ledger@127.0.0.1:15432/ledger", "postgres_password_file": "/x"}
    write_endpoints(home, {**s3.addresses(home), **postgres, "kafka_bootstrap": "127.0.0.1:19092"})
    forget_addresses(home)
    assert read_endpoints(home) == {**s3.addresses(home), **postgres}
    assert read_endpoints(home)["warehouse"] == "s3a://ledger/warehouse"
    (home / "stack/endpoints.json").write_text("{")
    forget_addresses(home)
    assert read_endpoints(home) == {}


def test_a_home_without_s3_forgets_all_addresses(home: Path) -> None:
    write_endpoints(home, {"postgres_url": "postgresql://ledger@127.0.0.1:15432/ledger"})
    forget_addresses(home)
    assert read_endpoints(home) == {}


def test_processes_get_the_keys_if_the_warehouse_is_in_the_server_of_their_home(home: Path, started: Call) -> None:
    on_disk = read_settings({"LEDGER_HOME": str(home), "LEDGER_KAFKA_BOOTSTRAP": "127.0.0.1:19092"})
    in_s3 = replace(on_disk, warehouse=cast(Path, UPath("s3a://ledger/warehouse")), has_several_hosts=True)
    assert s3.environment(home, in_s3) == {}
    switch_on(home)
    assert s3.environment(home, on_disk) == {}
    access = {**json.loads(s3.keys_file(home).read_text()), "AWS_ENDPOINT_URL": s3.own_url(home)}
    assert access.items() <= s3.environment(home, in_s3).items()
    wanted = airflow.environment(in_s3, "postgresql://ledger@127.0.0.1:15432/airflow", 18080, {"AWS_ENDPOINT_URL": "http://127.0.0.1:1"})
    assert access.items() <= wanted.items()
    assert (wanted["LEDGER_WAREHOUSE"], wanted["LEDGER_HOSTS"]) == ("s3a://ledger/warehouse", "several")
    assert "AWS_SECRET_ACCESS_KEY" not in airflow.environment(on_disk, "postgresql://l@127.0.0.1:15432/airflow", 18080, {})


def test_executors_get_the_keys_by_their_workers(home: Path, started: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    switch_on(home)
    calls: list[dict[str, str]] = []
    monkeypatch.setattr(cluster, "start", lambda _home, _part, _words, environment, _log: calls.append(environment))
    cluster.launch(home, s3.environment(home))
    assert len(calls) == len(cluster.PARTS)
    assert all(s3.environment(home).items() <= environment.items() for environment in calls)


@pytest.mark.parametrize("words", [["--with", "prometheus,s3"], ["--with", "prometheus s3"], ["--with", "prometheus", "--with", "s3"]])
def test_several_parts_are_named_in_one_word_or_in_several(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[str, bool] = {}
    monkeypatch.setattr(command, "up", lambda *, report, **parts: told.update(parts))
    assert command.main(["up", *words]) == 0
    assert told == {"with_prometheus": True, "with_cluster": False, "with_s3": True}
