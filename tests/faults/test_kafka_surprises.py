"""What Kafka may do to the ingestion: every record that was acknowledged is in bronze once, or its loss is refused, accepted and recorded.

One broker, one home and one story, in the order of the tests. A broker of its own, because topics are spoilt.
"""

import random
import signal
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.cimpl import NewPartitions, NewTopic
from deltalake import DeltaTable

from spark_jobs import control
from spark_jobs.bronze.resume_state import open_checkpoint
from spark_jobs.kafka import offsets
from spark_jobs.lake import leases, tables
from spark_jobs.lake.tables import BRONZE_ACCOUNTS, BRONZE_CUSTOMERS, BRONZE_TRANSACTIONS, Table
from spark_jobs.runtime.errors import LedgerError, SettingsError
from tests.support.brokers import running_broker
from tests.support.ledger import Ledger, await_that
from tests.support.surprises import Headers, Place, Sent

pytestmark = pytest.mark.faults

MEGABYTES_10 = 10_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sent]:
    with running_broker(tmp_path_factory.mktemp("surprises")) as bootstrap:
        yield Sent(bootstrap)


@pytest.fixture(scope="module")
def ledger(sent: Sent, tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    return Ledger(tmp_path_factory.mktemp("surprised") / "home", sent.bootstrap)


@pytest.fixture(params=["UTC", "Europe/Berlin"])
def zone(request: pytest.FixtureRequest) -> Iterator[None]:
    """The zone of this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", request.param)
        time.tzset()
        yield
    time.tzset()


def test_records_of_every_kind_and_new_partitions_while_it_runs(sent: Sent, ledger: Ledger) -> None:
    send_oddities(sent)
    with ledger.running("bronze") as bronze:
        await_that(lambda: bronze.poll() is not None or count(ledger) == len(sent.records))
        sent.admin.create_partitions([NewPartitions("transactions", 7)])["transactions"].result(15)
        await_that(lambda: len(sent.admin.list_topics("transactions", 15).topics["transactions"].partitions) == 7)
        for partition in range(7):
            sent.send("transactions", *texts("grown", 10), partition=partition)
        await_that(lambda: bronze.poll() is not None or count(ledger) == len(sent.records))
        bronze.send_signal(signal.SIGTERM)
        _, errors = bronze.communicate(timeout=180)
    assert bronze.returncode == 0, errors
    assert_bronze_is(ledger, sent)
    assert control.read(ledger.settings, tables.HOLES).num_rows == 0


def test_nothing_is_accepted_unasked(ledger: Ledger) -> None:
    done = ledger.try_run("accept --topic customers --who Ann --why so")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "topic customers: found nothing to accept" in done.stderr


def test_a_topic_that_was_deleted_is_not_made_again(sent: Sent, ledger: Ledger) -> None:
    sent.delete("customers")
    done = ledger.try_run("bronze --available-now")
    assert done.returncode == 1
    assert f"topic customers: found none at {sent.bootstrap}" in done.stderr
    assert "customers" not in sent.topics()


def test_what_is_refused_is_accepted_while_the_ingestion_holds_its_leases(sent: Sent, ledger: Ledger) -> None:
    """Customers were made anew and have more records than before; transactions were removed unread; a file of accounts is torn."""
    sent.make_anew("customers", "customers#2")
    most = max(offset for topic, _, offset in sent.records if topic == "customers")
    sent.send("customers", *texts("anew", most + 20), key=b"C1")
    behind = max(offset for topic, partition, offset in sent.records if (topic, partition) == ("transactions", 6)) + 1
    sent.send("transactions", *texts("late", 20), partition=6)
    sent.forget("transactions", 6, behind + 15)
    lost = {("transactions", 6, behind + n) for n in range(15)}
    sent.records = {place: record for place, record in sent.records.items() if place not in lost}
    sent.send("accounts", *texts("more", 5), key=b"A1")
    newest = max(ledger.settings.checkpoints.glob("bronze/accounts/*/offsets/[0-9]*"), key=lambda file: int(file.name))
    newest.write_bytes(newest.read_bytes()[:40])

    with leases.hold(ledger.settings, tables.BRONZE, owner="bronze"):
        assert "it was deleted and created again" in refusal(ledger, BRONZE_CUSTOMERS)
        gone = f"Kafka has removed offsets {behind} to {behind + 14} of partition 6, which bronze.transactions lacks"
        assert gone in refusal(ledger, BRONZE_TRANSACTIONS)
        for topic in ("transactions", "customers"):
            ledger.run(f"accept --topic {topic} --who Ann --why tested")
    done = ledger.try_run("bronze --available-now")
    assert done.returncode == 0, done.stderr
    assert f"{newest}: it differs from its check sums: a new checkpoint is made" in done.stderr
    assert_bronze_is(ledger, sent)
    holes = [
        (row["_partition"], row["first_offset"], row["last_offset"]) for row in control.read(ledger.settings, tables.HOLES).to_pylist()
    ]
    assert holes == [(6, behind, behind + 14)]


def test_a_replay_is_of_the_present_topic(sent: Sent, ledger: Ledger) -> None:
    DeltaTable(str(BRONZE_CUSTOMERS.path(ledger.settings))).delete("_offset = 3")
    done = ledger.try_run("replay --from 2020-01-01T00:00:00Z --only customers")
    assert done.returncode == 0, done.stderr
    assert [place for place in bronze_rows(ledger, BRONZE_CUSTOMERS) if place[2] == 3] == [("customers#2", 0, 3)]


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("2026-03-29T00:59:59.999Z", 1),
        ("2026-03-29T01:59:59.999+01:00", 1),  # the last moment of winter in Berlin
        ("2026-03-29T01:00:00Z", 1),
        ("2026-03-29T02:00:00+01:00", 1),  # on no clock there
        ("2026-03-29T03:00:00+02:00", 1),
        ("2026-03-29T01:00:00.001Z", 2),
        ("2026-03-29T03:00:00.000001+02:00", 2),  # a microsecond behind the record
        ("2026-10-25T00:30:00Z", 3),
        ("2026-10-25T02:30:00+02:00", 3),  # the first half past two of that night
        ("2026-10-25T01:30:00Z", 4),
        ("2026-10-25T02:30:00+01:00", 4),  # the second
        ("2026-10-25T01:30:01Z", 5),
        ("1969-12-31T23:59:59Z", 0),
        ("earliest", 0),
        ("latest", 5),
        ("committed", 2),
    ],
)
@pytest.mark.usefixtures("zone")
def test_starting_points(sent: Sent, ledger: Ledger, start: str, expected: int) -> None:
    present = offsets.read_topic(ledger.settings, moments(sent))
    starts, holes = offsets.find_start(ledger.settings, "moments", start, present, {"0": 2})
    assert starts == {"0": expected}
    assert holes == ([{"_partition": 0, "first_offset": 2, "last_offset": expected - 1}] if expected > 2 else [])


def test_a_starting_point_without_a_zone(ledger: Ledger) -> None:
    with pytest.raises(SettingsError, match="without a zone"):
        offsets.check_start("2026-03-29T02:30:00")


@pytest.mark.soak
def test_from_an_hour_back_nothing_comes_twice(sent: Sent, ledger: Ledger) -> None:
    sent.send("transactions", *texts("before", 50))
    ledger.run("bronze --available-now")
    before = {table: ledger.rows(table) for table in tables.BRONZE}
    ledger.run(f"bronze --available-now --starting-offsets {(datetime.now(UTC) - timedelta(hours=1)).isoformat()}")
    assert {table: len(ledger.rows(table)) for table in before} == {table: len(rows) for table, rows in before.items()}
    sent.send("transactions", *texts("after", 5))
    ledger.run("bronze --available-now")
    assert len(ledger.rows(BRONZE_TRANSACTIONS)) == len(before[BRONZE_TRANSACTIONS]) + 5


@pytest.mark.soak
@pytest.mark.parametrize("kept", [0, 20])
@pytest.mark.parametrize("name", ["offsets/[0-9]*", "commits/[0-9]*", "metadata", "sources/0/0", "../generation.json"])
def test_a_torn_file(sent: Sent, ledger: Ledger, name: str, kept: int) -> None:
    """Whatever is torn, of a checkpoint that Spark wrote."""
    sent.send("accounts", *texts(f"{name} {kept}", 3), key=b"A")
    ledger.kill_at("after bronze.accounts", "bronze --available-now")
    (folder,) = {
        path.parent for path in ledger.settings.checkpoints.glob("bronze/accounts/*/offsets") if path.parent.name in in_use(ledger)
    }
    newest = max(folder.glob(name), key=lambda file: int(file.name) if file.name.isdecimal() else 0)
    newest.write_bytes(newest.read_bytes()[:kept])
    sent.send("accounts", *texts("later", 3), key=b"A")
    ledger.run("bronze --available-now")
    assert bronze_rows(ledger, BRONZE_ACCOUNTS) == sent.of(BRONZE_ACCOUNTS)


@pytest.mark.soak
def test_many_records_of_10_mb_behind_small_ones(sent: Sent, tmp_path: Path) -> None:
    """In a JVM of 1 GB, whatever Parquet and Spark would like to hold of them."""
    ledger, chance = Ledger(tmp_path / "home", sent.bootstrap), random.Random(6)
    for partition in (0, 1):
        sent.send("transactions", *texts("small", 5000), partition=partition)
        for _ in range(30):
            sent.send("transactions", chance.randbytes(MEGABYTES_10), partition=partition)
    ledger.run("bronze --available-now")
    places = control.query(DeltaTable(str(BRONZE_TRANSACTIONS.path(ledger.settings))), "select _topic, _partition, _offset from t")
    found = list(zip(*(places[name].to_pylist() for name in ("_topic", "_partition", "_offset")), strict=True))
    assert len(found) == len(set(found))
    assert set(found) == sent.of(BRONZE_TRANSACTIONS).keys()


def send_oddities(sent: Sent) -> None:
    """Records of every kind; in each topic committed and aborted transactions lie between others."""
    sent.send("transactions", random.Random(5).randbytes(MEGABYTES_10), b"after it", partition=1)
    sent.send("transactions", b"x", b"", None, headers=[("a", b"1"), ("a", None), ("", b""), ("ä", b"\xff")])
    sent.send("transactions", b"\x00\xff", key=b"")
    for partition, codec in enumerate(CODECS):
        sent.send("transactions", *texts(codec, 50), key=codec.encode(), partition=partition, codec=codec)
    for topic in ("transactions", "customers", "accounts"):
        sent.in_transaction(topic, *texts("committed", 5), is_good=True)
        sent.in_transaction(topic, *texts("aborted", 5), is_good=False)
        sent.send(topic, *texts("between", 5), key=b"K")
        sent.in_transaction(topic, *texts("last", 5), is_good=True)


def texts(name: str, number: int) -> list[bytes]:
    return [f"{name} {n}".encode() * 10 for n in range(number)]


def moments(sent: Sent) -> str:
    """A topic with records at the edges of summer time in Berlin, whose times are the sender's."""
    if "moments" not in sent.topics():
        config = {"message.timestamp.type": "CreateTime", "retention.ms": "-1", "message.timestamp.after.max.ms": str(2**63 - 1)}
        sent.admin.create_topics([NewTopic("moments", num_partitions=1, config=config)])["moments"].result(15)
        producer = Producer({"bootstrap.servers": sent.bootstrap})
        for time in ("2026-03-29T00:59:59.998", "2026-03-29T01:00:00", "2026-03-29T01:00:00.001", "2026-10-25T00:30", "2026-10-25T01:30"):
            millis = round(datetime.fromisoformat(time).replace(tzinfo=UTC).timestamp() * 1000)
            producer.produce("moments", b"x", timestamp=millis, partition=0)
        assert producer.flush(15) == 0
    return "moments"


def refusal(ledger: Ledger, table: Table) -> str:
    with pytest.raises(LedgerError) as caught:
        open_checkpoint(ledger.settings, table, table.name.split(".")[1], None)
    return str(caught.value)


def in_use(ledger: Ledger) -> str:
    return (ledger.settings.checkpoints / "bronze/accounts/generation.json").read_text()


def count(ledger: Ledger) -> int:
    return sum(len(ledger.rows(table)) for table in tables.BRONZE if ledger.exists(table))


def assert_bronze_is(ledger: Ledger, sent: Sent) -> None:
    for table in tables.BRONZE:
        found, expected = bronze_rows(ledger, table), sent.of(table)
        assert (len(found), list(found.keys() ^ expected.keys())[:5]) == (len(expected), [])
        assert [place for place in found if found[place] != expected[place]] == []
        assert len(ledger.rows(table)) == len(found)


def bronze_rows(ledger: Ledger, table: Table) -> dict[Place, tuple[bytes | None, bytes | None, Headers]]:
    return {
        (row["_topic"], row["_partition"], row["_offset"]): (
            row["key"],
            row["value"],
            [(header["key"], header["value"]) for header in row["headers"] or []],
        )
        for row in ledger.rows(table)
    }
