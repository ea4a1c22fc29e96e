"""The S3 server of the stack, alone: who has its keys can put and get, nobody else, and a kill loses nothing that was acknowledged."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import S3Store

from include.stack import lifecycle, s3
from include.stack.endpoints import ports_of
from include.stack.processes import find_all, find_part

pytestmark = pytest.mark.integration


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    lifecycle.down({"LEDGER_HOME": str(tmp_path)}, report=lambda _: None)
    assert find_all(tmp_path) == []
    assert not [socket for port in ports_of(tmp_path).values() for socket in Path("/tmp").glob(f"seaweedfs-*-{port}.sock")]


def start(home: Path) -> psutil.Process:
    started = s3.launch(home)
    assert started is not None
    s3.wait(home, started)
    return started.process


def client(home: Path, **other_keys: str) -> S3Store:
    keys = {**json.loads(s3.keys_file(home).read_text()), **other_keys}
    return S3Store(
        s3.BUCKET,
        endpoint=s3.own_url(home) or "",
        region=s3.REGION,
        access_key_id=keys["AWS_ACCESS_KEY_ID"],
        secret_access_key=keys["AWS_SECRET_ACCESS_KEY"],
        client_options={"allow_http": True},
        retry_config={"max_retries": 0},
    )


def test_only_who_has_the_keys_gets_at_the_objects(home: Path) -> None:
    process = start(home)
    store = client(home)
    store.put("warehouse/a.json", b"{}", mode="create")
    with pytest.raises(AlreadyExistsError):  # by this, one of two writers commits
        store.put("warehouse/a.json", b"[]", mode="create")
    large = b"0123456789abcdef" * 1_000_000
    store.put("warehouse/b.parquet", large)
    assert (bytes(store.get("warehouse/a.json").bytes()), bytes(store.get("warehouse/b.parquet").bytes())) == (b"{}", large)
    with pytest.raises(BaseError, match="403"):
        client(home, AWS_SECRET_ACCESS_KEY="guessed").get("warehouse/a.json").bytes()
    with pytest.raises(BaseError, match="403"):
        client(home, AWS_ACCESS_KEY_ID="guessed").put("warehouse/c.json", b"{}")
    assert_closed(home, process)
    assert s3.launch(home) is None  # it runs
    assert lifecycle.status({"LEDGER_HOME": str(home)})["S3_URL"] == s3.own_url(home)


def assert_closed(home: Path, process: psutil.Process) -> None:
    """It listens on its own ports of loopback, and none of them serves HTTP to who has neither key nor token."""
    listening = [each.laddr for each in process.net_connections() if each.status == psutil.CONN_LISTEN]
    assert {address.ip for address in listening} == {"127.0.0.1"}
    assert sorted(address.port for address in listening) == sorted(ports_of(home).values())
    asked = {"s3": ("", "ledger/warehouse/a.json"), "s3-filer": ("", "buckets/ledger/warehouse/a.json")}
    asked |= {"s3-master": ("dir/assign", "dir/status"), "s3-volume": ("ui/index.html", "1,01")}
    for part, paths in asked.items():
        for path in paths:
            answer = httpx.get(f"http://127.0.0.1:{ports_of(home)[part]}/{path}", trust_env=False, timeout=60)
            assert answer.status_code in (401, 403, 404), f"{part} /{path}: {answer.status_code}"


def test_a_kill_loses_no_object_that_was_acknowledged(home: Path) -> None:
    start(home)
    objects = {f"warehouse/{number}": f"{number} ".encode() * (1 + number * 97) for number in range(200)}
    store = client(home)
    for name, content in objects.items():
        store.put(name, content)
    killed = find_part(home, s3.PART)
    assert killed is not None
    killed.send_signal(signal.SIGKILL)
    killed.wait(10)
    start(home)
    store = client(home)
    assert {name: bytes(store.get(name).bytes()) for name in objects} == objects
