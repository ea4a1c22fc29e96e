"""Records that decode to more than the driver's heap: one is refused and given up, its neighbours and the other topics come all the same.

One broker, one home and one story, in the order of the tests.
"""

import re
import shutil
from collections.abc import Iterator

import pytest
from deltalake import DeltaTable

from include.demo.reconciliation import ingested
from spark_jobs import control
from spark_jobs.bronze import acceptance
from spark_jobs.kafka.fetches import Fetches
from spark_jobs.lake import tables
from spark_jobs.lake.tables import BRONZE_ACCOUNTS, BRONZE_CUSTOMERS, BRONZE_TRANSACTIONS
from spark_jobs.runtime.errors import SettingsError
from spark_jobs.runtime.kafka_config import Broker
from spark_jobs.service import heartbeat
from spark_jobs.service.services import INGESTION
from tests.support.brokers import running_broker
from tests.support.ledger import Ledger, await_that
from tests.support.surprises import Sent

pytestmark = pytest.mark.faults

BOMB = 600 * 10**6  # does not fit into the driver's heap of 1 GB
MOST = 32 * 2**20
CODECS = ("gzip", "snappy", "lz4", "zstd")


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sent]:
    with running_broker(tmp_path_factory.mktemp("large")) as bootstrap:
        yield Sent(bootstrap)


@pytest.fixture(scope="module")
def ledger(sent: Sent, tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    return Ledger(tmp_path_factory.mktemp("large") / "home", sent.bootstrap)


def texts(name: str, number: int) -> list[bytes]:
    return [f"{name} {n}".encode() for n in range(number)]


def send_bomb(sent: Sent, topic: str, size: int, *, partition: int = 0, codec: str = "zstd") -> int:
    """Send 20 good records, one of so many zeros, and 20 good ones in one record batch with it; returns its offset."""
    sent.send(topic, *texts("before", 20), bytes(size), *texts("behind", 20), partition=partition, key=b"K", codec=codec)
    bomb = next(place[2] for place, record in sent.records.items() if place[:2] == (topic, partition) and len(record[1] or b"") == size)
    with Fetches(Broker(sent.bootstrap), topic) as fetches:
        batches = list(fetches.batches(partition, bomb, bomb + 1))
    assert [batch.first_offset <= bomb < batch.last_offset for batch in batches] == [True]  # it has neighbours
    return bomb


def give_up(sent: Sent, topic: str, partition: int, offset: int) -> str:
    del sent.records[topic, partition, offset]
    return f"accept --topic {topic} --partition {partition} --offset {offset} --who Ann --why tested"


def assert_bronze_is(ledger: Ledger, sent: Sent) -> None:
    for table in tables.BRONZE:
        rows = ledger.rows(table)
        found = {(row["_topic"], row["_partition"], row["_offset"]): (row["key"], row["value"]) for row in rows}
        expected = {place: record[:2] for place, record in sent.of(table).items()}
        assert (len(rows), list(found.keys() ^ expected.keys())[:5]) == (len(expected), [])
        assert [place for place in found if found[place] != expected[place]] == []


def holes(ledger: Ledger) -> set[tuple[str, int, int, int]]:
    rows = control.read(ledger.settings, tables.HOLES).to_pylist()
    return {(row["_topic"], row["_partition"], row["first_offset"], row["last_offset"]) for row in rows}


def test_one_record_stops_its_topic_with_the_command_and_no_other(sent: Sent, ledger: Ledger) -> None:
    sent.send("customers", *texts("early", 50), key=b"K")
    offset = send_bomb(sent, "customers", BOMB)
    sent.send("customers", *texts("late", 50), key=b"K")
    sent.send("transactions", *texts("good", 50))
    done = ledger.try_run("bronze --available-now")
    assert done.returncode == 1, done.stderr
    told = done.stderr.splitlines()[-1]
    assert re.search(
        rf"topic customers: found a record of 6000000\d\d bytes at offset {offset} of partition 0, expected at most {MOST}", told
    )
    assert told.endswith(f"accept --topic customers --partition 0 --offset {offset} --who NAME --why TEXT")
    assert len(ledger.rows(BRONZE_TRANSACTIONS)) == 50
    assert ledger.rows(BRONZE_CUSTOMERS) == []


@pytest.mark.parametrize(
    ("partition", "offset", "found"),
    [
        (0, 0, "found a record of 1[0-9] bytes at offset 0 of partition 0, expected one of more than"),
        (0, 100_000, "found no record at offset 100000 of partition 0"),
        (7, 0, "found no record at offset 0 of partition 7"),
    ],
)
def test_only_what_cannot_be_taken_is_given_up(ledger: Ledger, partition: int, offset: int, found: str) -> None:
    with pytest.raises(SettingsError, match=found):
        acceptance.give_up(ledger.settings, BRONZE_CUSTOMERS, partition, offset, "Ann", "so")
    assert holes(ledger) == set()


def test_it_is_given_up_while_ingestion_runs_and_one_of_each_codec_after_it(sent: Sent, ledger: Ledger) -> None:
    with ledger.running("bronze") as bronze:
        await_that(lambda: bronze.poll() is not None or "--offset" in status(ledger))
        (offset,) = [place[2] for place, record in sent.records.items() if len(record[1] or b"") == BOMB]
        ledger.run(give_up(sent, "customers", 0, offset))
        await_that(lambda: bronze.poll() is not None or len(ledger.rows(BRONZE_CUSTOMERS)) == len(sent.of(BRONZE_CUSTOMERS)))
        for partition, codec in enumerate(CODECS):
            bomb = send_bomb(sent, "transactions", 100 * 10**6, partition=partition, codec=codec)
            ledger.run(give_up(sent, "transactions", partition, bomb))
        await_that(lambda: bronze.poll() is not None or len(ledger.rows(BRONZE_TRANSACTIONS)) == len(sent.of(BRONZE_TRANSACTIONS)))
        sent.send("transactions", *(bytes([n]) * 10**7 for n in range(10)), partition=4, codec="zstd")  # much, but none too large
        sent.send("accounts", bytes(2 * MOST), key=b"K", codec="lz4")
        ledger.run(give_up(sent, "accounts", 0, 0))
        await_that(lambda: bronze.poll() is not None or reached(ledger)["accounts"] == {"0": 1})
        await_that(lambda: bronze.poll() is not None or len(ledger.rows(BRONZE_TRANSACTIONS)) == len(sent.of(BRONZE_TRANSACTIONS)))
        assert bronze.poll() is None, bronze.communicate()
    assert_bronze_is(ledger, sent)
    assert len(holes(ledger)) == 6
    assert ingested(ledger.settings, BRONZE_ACCOUNTS, "accounts") == {0: (0, 1)}


def test_neither_a_replay_nor_a_lost_checkpoint_brings_it_back(sent: Sent, ledger: Ledger) -> None:
    DeltaTable(str(BRONZE_CUSTOMERS.path(ledger.settings))).delete("_offset >= 60")
    done = ledger.try_run("replay --from 2020-01-01T00:00:00Z --only customers")
    assert done.returncode == 0, done.stderr
    assert "80 added, 1 left out, of more than 33554432 bytes (offset 70)" in done.stderr
    assert "the hole from offset 70 to 70 of partition 0 still lacks 1" in done.stderr
    assert_bronze_is(ledger, sent)
    shutil.rmtree(ledger.settings.checkpoints / "bronze" / "customers")
    ledger.run("bronze --available-now")
    assert_bronze_is(ledger, sent)


def reached(ledger: Ledger) -> dict[str, dict[str, int]]:
    (beat,) = heartbeat.read(ledger.settings, INGESTION)
    return {topic: part.get("offsets", {}) for topic, part in beat.parts.items()}


def status(ledger: Ledger) -> str:
    return ledger.try_run("ingestion status").stderr
