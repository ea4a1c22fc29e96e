"""A replay brings back exactly what bronze lacks, and neither the stream nor silver loses or doubles a record for it."""

import re
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable

from include.producer import Message
from spark_jobs import control
from spark_jobs.bronze.resume_state import open_checkpoint
from spark_jobs.lake import leases, tables
from spark_jobs.lake.tables import Table
from tests.integration.conftest import Broker, Wave
from tests.support import waves
from tests.support.brokers import running_broker
from tests.support.checks import assert_bronze_is, assert_silver_follows
from tests.support.ledger import Ledger, Row

pytestmark = [pytest.mark.integration, pytest.mark.faults]

ALL = "replay --from 2020-01-01T00:00:00Z"
SENT = 10


@pytest.fixture(scope="module")
def killed(broker: Broker, first_wave: Wave, second_wave: list[Message], tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    """Silver has the first wave, bronze all that was sent. Then more was, and the stream was killed with its batch planned, not written."""
    ledger = first_wave.saved.copy(tmp_path_factory.mktemp("killed") / "home")
    ledger.run("bronze --available-now")
    row = next(message for message in first_wave.sent if message.topic == "transactions" and message.injected is None)
    broker.send([waves.new(row, f"T-replay-{number}") for number in range(SENT)])
    ledger.kill_at("before bronze.transactions", "bronze --available-now")
    return ledger


@pytest.fixture(scope="module")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker whose topics may be spoilt."""
    with running_broker(tmp_path_factory.mktemp("own")) as bootstrap:
        yield bootstrap


def test_what_was_removed_comes_back_and_the_stream_continues(broker: Broker, killed: Ledger, tmp_path: Path) -> None:
    ledger, last = killed.copy(tmp_path / "home"), last_batch(killed)
    before = {table: ledger.rows(table) for table in tables.BRONZE}
    gone = delete(ledger, tables.BRONZE_TRANSACTIONS, "_batch = 1 and _offset % 7 = 3")  # of those that silver has
    assert delete(ledger, tables.BRONZE_CUSTOMERS, "_offset between 5 and 9") == 5
    assert lacking(ledger, before) == {"bronze.transactions": gone, "bronze.customers": 5}

    ledger.kill_at("before bronze.transactions", ALL)
    assert lacking(ledger, before) == {"bronze.transactions": gone, "bronze.customers": 5}
    ledger.kill_at("after bronze.transactions", ALL)
    assert lacking(ledger, before) == {"bronze.customers": 5}
    told = replay(ledger)
    assert lacking(ledger, before) == {}
    assert re.search(r"bronze.customers partition 0: offsets 0 to (\d+): \d+ present, 5 added\n", told), told
    assert f"{SENT} offsets lie where the ingestion has not been yet" in told
    versions = ledger.versions()
    assert "nothing was written" in replay(ledger)
    assert ledger.versions() == versions

    file = tmp_path / "one.csv"  # takes the number that the planned batch would have had
    file.write_text("transactionId\nT-file\n")
    ledger.run(f"import --topic transactions --name one --file {file}")
    done = ledger.try_run("bronze --available-now")
    assert (done.returncode, "Z WARNING" in done.stderr) == (0, False), done.stderr
    assert new_batches(ledger) == {last + 2}
    assert delete(ledger, tables.BRONZE_TRANSACTIONS, f"_topic = 'file:one' and _batch = {last + 1}") == 1
    assert_bronze_is(ledger, broker.sent)


def test_a_hole_is_filled_by_a_new_batch_and_the_next_one_lies_behind_it(broker: Broker, killed: Ledger, tmp_path: Path) -> None:
    ledger, last = killed.copy(tmp_path / "home"), last_batch(killed)
    open_checkpoint(ledger.settings, tables.BRONZE_TRANSACTIONS, "transactions", "latest")  # as `--starting-offsets latest` does
    holes = [row for row in control.read(ledger.settings, tables.HOLES).to_pylist() if row["why"] == "started at latest"]
    assert sum(row["last_offset"] - row["first_offset"] + 1 for row in holes) == SENT
    sent_at = max(row["_timestamp"] for row in ledger.rows(tables.BRONZE_TRANSACTIONS))
    assert "nothing is missing" in replay(ledger, f"{ALL} --to {sent_at.isoformat()}")
    assert "nothing is missing" in replay(ledger, f"{ALL} --only customers,accounts")
    ledger.kill_at("after bronze.transactions", ALL)
    told = replay(ledger)  # what it had done it has done; that the holes are filled is said now
    assert told.count("is filled") == len(holes)
    assert_bronze_is(ledger, broker.sent)
    assert new_batches(ledger) == {last + 1}
    assert [row["why"] for row in control.read(ledger.settings, tables.HOLES).to_pylist()].count("filled by a replay") == len(holes)
    assert "is filled" not in replay(ledger)


def test_while_the_ingestion_runs_it_says_what_to_do(killed: Ledger) -> None:
    (file := killed.home / "x.csv").write_text("customer_id\nC00000001\n")
    with leases.hold(killed.settings, tables.BRONZE, owner="bronze"):
        for command in (ALL, f"import --topic customers --name x --file {file}"):
            said = one_line(killed.try_run(command), 5)
            assert "is being written by bronze (process " in said
            assert "run ingestion stop" in said


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--from 2026-01-01T00:00:00", "--from: found '2026-01-01T00:00:00' without a zone"),
        ("--from 2026-01-01T00:00:00Z --to yesterday", "--to: found 'yesterday', expected a time such as"),
        ("--from 2026-01-01T00:00:00Z --to 2026-01-01T01:00:00+01:00", "expected --from before --to"),
        (
            "--from 2026-01-01T00:00:00Z --only customers,people",
            "--only: found 'customers,people', expected some of transactions,customers,accounts",
        ),
        ("--to 2026-01-01T00:00:00Z", "--from"),
    ],
)
def test_arguments_that_cannot_be_used(tmp_path: Path, words: str, told: str) -> None:
    assert told in one_line(Ledger(tmp_path / "home").try_run(f"replay {words}"), 2)
    assert not (tmp_path / "home").exists()


@pytest.mark.soak
def test_silver_after_a_replay(broker: Broker, killed: Ledger, tmp_path: Path) -> None:
    """Rows that silver had, and rows that it had not, were removed and came back."""
    ledger = killed.copy(tmp_path / "home")
    ledger.run("bronze --available-now")
    newest = max(row["_offset"] for row in ledger.rows(tables.BRONZE_TRANSACTIONS) if row["_batch"] == last_batch(ledger))
    for table, where in (
        (tables.BRONZE_TRANSACTIONS, f"_offset % 5 = 2 or _offset = {newest}"),
        (tables.BRONZE_CUSTOMERS, "_offset % 2 = 1"),
    ):
        delete(ledger, table, where)
    replay(ledger)
    assert_bronze_is(ledger, broker.sent)
    ledger.run("silver")
    assert_silver_follows(ledger)


@pytest.mark.soak
def test_records_are_as_spark_reads_them_and_what_kafka_lost_is_told(own_broker: str, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "home", own_broker)
    send_oddities(own_broker)
    ledger.run("bronze --available-now")
    before = ledger.rows(tables.BRONZE_TRANSACTIONS)
    assert len(before) == 6
    assert delete(ledger, tables.BRONZE_TRANSACTIONS, "true") == 6
    told = replay(ledger)
    assert "6 added, 4 without a record (compaction, markers or aborted transactions)" in told, told
    assert unnumbered(ledger.rows(tables.BRONZE_TRANSACTIONS)) == unnumbered(before)

    delete(ledger, tables.BRONZE_TRANSACTIONS, "_offset in (0, 1, 7)")
    admin = AdminClient({"bootstrap.servers": own_broker})
    for asked in admin.delete_records([TopicPartition("transactions", 0, 2)]).values():
        asked.result(15)
    told = replay(ledger)
    assert "1 added, 4 without a record (compaction, markers or aborted transactions), 2 older ones gone from Kafka" in told
    assert "replay: 2 offsets of the range are in neither bronze nor Kafka" in told
    soon = datetime.now(UTC) + timedelta(hours=1)
    assert "nothing is missing" in replay(ledger, f"replay --from {soon.isoformat()}")


def send_oddities(bootstrap: str) -> None:
    """To partition 0: empty and null keys and values, headers, and transactions, one of them aborted."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "odd"})
    producer.init_transactions(15)
    odd: list[tuple[bytes | None, bytes | None, list[tuple[str, str | bytes | None]]]] = [
        (None, b"", []),
        (b"", None, [("a", b"1"), ("a", None), ("", b"")]),
        (b"\xff", b"\x00", []),
    ]
    for records, is_good in ((odd, True), (odd[:1], False), (odd, True)):
        producer.begin_transaction()
        for key, value, headers in records:
            producer.produce("transactions", value, key, partition=0, headers=headers)
        producer.flush(15)
        producer.commit_transaction(15) if is_good else producer.abort_transaction(15)


def unnumbered(rows: list[Row]) -> list[Row]:
    return sorted(({name: value for name, value in row.items() if name != "_batch"} for row in rows), key=place)


def delete(ledger: Ledger, table: Table, where: str) -> int:
    return int(DeltaTable(str(table.path(ledger.settings))).delete(where)["num_deleted_rows"])


def replay(ledger: Ledger, command: str = ALL) -> str:
    """What a replay that ended well has said."""
    done = ledger.try_run(command)
    assert done.returncode == 0, done.stderr
    return done.stderr


def one_line(done: subprocess.CompletedProcess[str], exit_code: int) -> str:
    assert (done.returncode, done.stderr.count("\n"), done.stdout) == (exit_code, 1, ""), done.stderr
    return done.stderr


def last_batch(ledger: Ledger) -> int:
    return max(int(row["_batch"]) for row in ledger.rows(tables.BRONZE_TRANSACTIONS))


def new_batches(ledger: Ledger) -> set[int]:
    return {row["_batch"] for row in ledger.rows(tables.BRONZE_TRANSACTIONS) if b"T-replay" in row["key"]}


def lacking(ledger: Ledger, before: dict[Table, list[Row]]) -> dict[str, int]:
    """How many rows each table lacks of those from before; it has no others, and none twice."""
    found = {}
    for table, rows in before.items():
        wanted, now = {place(row): row for row in rows}, ledger.rows(table)
        by_place = {place(row): row for row in now}
        assert len(by_place) == len(now)
        assert by_place.items() <= wanted.items()
        if len(by_place) < len(wanted):
            found[table.name] = len(wanted) - len(by_place)
    return found


def place(row: Row) -> tuple[str, int, int]:
    return row["_topic"], row["_partition"], row["_offset"]
