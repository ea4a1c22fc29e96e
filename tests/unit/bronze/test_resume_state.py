"""Which checkpoint a bronze query starts with, when Kafka, the table or the files are not as they were. Kafka's answers are made up."""

import json
import shutil
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from spark_jobs import control
from spark_jobs.bronze import acceptance, additions, resume_state
from spark_jobs.bronze.checkpoints import Checkpoint
from spark_jobs.bronze.resume_state import open_checkpoint, resume_offsets
from spark_jobs.kafka.offsets import Present
from spark_jobs.lake import tables
from spark_jobs.lake.tables import BRONZE_ACCOUNTS, HOLES, TOPICS
from spark_jobs.runtime.errors import LedgerError, SettingsError
from spark_jobs.runtime.settings import Settings, read_settings
from spark_jobs.service.checkpoints import Generation

Positions = dict[str, int]


class Lake:
    """A bronze table of one topic, Spark's checkpoint beside it, and a Kafka of which a test says what it has."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.kafka = Present("id-1", {"0": 0}, {"0": 100})

    def open(self, start: str | None = None) -> Checkpoint:
        return open_checkpoint(self.settings, BRONZE_ACCOUNTS, "accounts", start)

    def refused(self) -> str:
        with pytest.raises(LedgerError) as caught:
            self.open()
        assert caught.value.exit_code == 1
        assert str(caught.value).endswith("run accept --topic accounts --who NAME --why TEXT")
        return str(caught.value)

    def accept(self) -> None:
        acceptance.run(self.settings, BRONZE_ACCOUNTS, "accounts", "Ann", "it is so")

    def plan(self, number: int, ends: Positions) -> None:
        """What Spark leaves when it begins a batch."""
        folder = self.open().folder
        if not (folder / "metadata").exists():
            put(folder / "metadata", '{"id":"5585a665-d2cc-4868-9cb7-26fdbd96ba12"}')
            put(folder / "sources/0/0", '\0v1\n{"accounts":{"0":0}}')
        put(folder / f"offsets/{number}", "v1\n" + json.dumps({"conf": "x" * 700}) + "\n" + json.dumps({"accounts": ends}))

    def write(self, label: str, offsets: dict[int, range]) -> None:
        """What our function writes of a batch."""
        number = additions.count_written(self.settings, BRONZE_ACCOUNTS) + 1
        rows = [{"_topic": label, "_partition": each, "_offset": n, "_batch": number} for each, found in offsets.items() for n in found]
        properties = CommitProperties(app_transactions=[Transaction(additions.STREAM, number)])
        data = pa.Table.from_pylist(rows, pa.schema(BRONZE_ACCOUNTS.delta_schema().to_arrow()))
        write_deltalake(str(BRONZE_ACCOUNTS.path(self.settings)), data, mode="append", commit_properties=properties)

    def commit(self, number: int) -> None:
        """What Spark leaves when it has ended a batch."""
        put(self.folder / f"commits/{number}", 'v1\n{"nextBatchWatermarkMs":0}')

    @property
    def folder(self) -> Path:
        root = resume_state.folder_of(self.settings, "accounts")
        return root / str(json.loads((root / "generation.json").read_text())["folder"])

    def holes(self) -> list[tuple[str, int, int, int]]:
        rows = control.read(self.settings, HOLES).to_pylist()
        return sorted((row["_topic"], row["_partition"], row["first_offset"], row["last_offset"]) for row in rows)


def put(file: Path, text: str) -> None:
    """A file with the check sums that Hadoop puts beside it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content := text.encode())
    sums = b"".join(zlib.crc32(content[n : n + 512]).to_bytes(4) for n in range(0, len(content), 512))
    file.with_name(f".{file.name}.crc").write_bytes(b"crc\0" + (512).to_bytes(4) + sums)


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """Batch 0 (offsets 0 to 9) is written and ended, batch 1 (10 to 19) written, batch 2 (20 to 29) planned."""
    settings = read_settings({"LEDGER_HOME": str(tmp_path), "LEDGER_KAFKA_BOOTSTRAP": "127.0.0.1:9"})
    tables.ensure_tables(settings, (*tables.BRONZE, *tables.CONTROL))
    lake = Lake(settings)
    monkeypatch.setattr(resume_state, "read_topic", lambda *_: lake.kafka)
    for number in range(3):
        lake.plan(number, {"0": 10 * number + 10})
        if number < 2:
            lake.write("accounts", {0: range(10 * number, 10 * number + 10)})
            lake.commit(number)
    return lake


def starts(checkpoint: Checkpoint) -> Positions:
    return dict(json.loads(checkpoint.starting_offsets)["accounts"])


def test_what_is_whole_continues(lake: Lake) -> None:
    assert lake.open().folder == lake.folder
    assert resume_offsets(lake.settings, BRONZE_ACCOUNTS, "accounts") == ("accounts", {"0": 20})
    lake.write("accounts", {0: range(20, 30)})  # and died before Spark's commit
    assert lake.open().folder == lake.folder
    assert resume_offsets(lake.settings, BRONZE_ACCOUNTS, "accounts") == ("accounts", {"0": 30})
    with pytest.raises(SettingsError, match="nothing to accept"):
        lake.accept()


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-3])


def empty(file: Path) -> None:
    file.write_bytes(b"")


def flip(file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[:-2] + bytes([content[-2] ^ 1]) + content[-1:])


@pytest.mark.parametrize("harm", [cut, empty, flip])
@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("offsets/2", 20),
        ("offsets/1", 0),  # how far the last written batch reaches is not known: from the earliest, less what bronze has
        ("commits/1", 20),
        ("metadata", 20),
        ("sources/0/0", 20),
        ("../generation.json", 0),
    ],
)
def test_a_damaged_file_makes_a_new_checkpoint(
    lake: Lake, caplog: pytest.LogCaptureFixture, harm: Callable[[Path], None], name: str, start: int
) -> None:
    before, file = lake.folder, lake.folder / name
    if harm == flip and "generation" in name:
        file.write_text(file.read_text().replace('"first_batch": ', '"first_batch": true, "x": '))
    else:
        harm(file)
    found = lake.open()
    assert found.folder != before
    assert [each for each in found.root.iterdir() if each.is_dir()] == [found.folder]  # the damaged one is of no use any more
    assert (starts(found), found.known, found.first_batch) == ({"0": start}, {"0": 19}, 3)
    assert found.may_replay(0)
    (told,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert file.name in told
    assert "a new checkpoint is made, and records that bronze has are left out" in told
    assert lake.open() == found


def test_files_that_are_missing(lake: Lake) -> None:
    folder = lake.folder
    (folder / "metadata").unlink()
    assert "metadata" in (Generation(folder.parent, folder.name).damage() or "")
    put(folder / "metadata", '{"id":"x"}')
    (folder / "offsets/.2.crc").unlink()
    assert Generation(folder.parent, folder.name).damage() is None  # Hadoop reads it, too
    (folder / "offsets/2").unlink()
    assert lake.open().folder == folder  # as if it had never been planned
    (folder / "offsets/1").unlink()
    assert starts(lake.open()) == {"0": 0}


def test_a_table_that_was_set_back_by_the_last_batch(lake: Lake) -> None:
    """Spark has ended a batch that the table lacks: it would go on behind it."""
    lake.plan(3, {"0": 40})
    lake.commit(2)
    lake.commit(3)
    assert starts(lake.open()) == {"0": 0}


def test_the_place_of_a_life_is_kept_when_nothing_was_written_yet(lake: Lake) -> None:
    found = lake.open("latest")
    assert (starts(found), lake.holes()) == ({"0": 100}, [("accounts", 0, 20, 99)])
    put(found.folder / "metadata", "")
    assert starts(lake.open()) == {"0": 100}


def test_offsets_that_are_gone_are_refused_and_accepted_once(lake: Lake) -> None:
    lake.kafka = replace(lake.kafka, begins={"0": 25, "1": 3}, ends={"0": 100, "1": 3})  # partition 1 was added and emptied
    told = lake.refused()
    assert "Kafka has removed offsets 20 to 24 of partition 0, 0 to 2 of partition 1, which bronze.accounts lacks" in told
    assert resume_offsets(lake.settings, BRONZE_ACCOUNTS, "accounts") == ("accounts", {"0": 20})  # a replay need not wait
    lake.accept()
    assert lake.holes() == [("accounts", 0, 20, 24), ("accounts", 1, 0, 2)]
    (why,) = {row["why"] for row in control.read(lake.settings, HOLES).to_pylist()}
    assert why == "removed from Kafka before they were read; accepted by Ann: it is so"
    with pytest.raises(SettingsError, match="nothing to accept"):
        lake.accept()

    lake.kafka = replace(lake.kafka, begins={"0": 31, "1": 3})  # more was lost before the next try
    assert "offsets 25 to 30 of partition 0, which" in lake.refused()
    lake.accept()
    found = lake.open()
    assert (starts(found), found.first_batch, found.label) == ({"0": 31, "1": 3}, 3, "accounts")
    assert lake.open() == found
    assert len(lake.holes()) == 3


def test_offsets_that_are_gone_from_kafka_but_in_bronze_are_no_loss(lake: Lake) -> None:
    lake.open("earliest")
    lake.kafka = replace(lake.kafka, begins={"0": 15})
    assert starts(lake.open()) == {"0": 15}
    DeltaTable(str(BRONZE_ACCOUNTS.path(lake.settings))).delete("_offset in (12, 13)")
    lake.open("earliest")
    lake.kafka = replace(lake.kafka, begins={"0": 22})
    assert "offsets 20 to 21 of partition 0, which" in lake.refused()  # 12 and 13 were there when it was asked to start at 15


def test_the_checkpoint_is_lost_and_so_are_offsets(lake: Lake) -> None:
    shutil.rmtree(lake.settings.checkpoints)
    lake.kafka = replace(lake.kafka, begins={"0": 22})
    assert "offsets 20 to 21 of partition 0, which" in lake.refused()
    lake.kafka = replace(lake.kafka, begins={"0": 20})
    assert starts(lake.open()) == {"0": 20}


def test_a_topic_created_again_is_another_incarnation(lake: Lake) -> None:
    lake.kafka = Present("id-2", {"0": 0, "1": 0}, {"0": 500, "1": 7})
    told = lake.refused()
    assert "found Kafka's topic id id-2, expected id-1: it was deleted and created again" in told
    assert "what the old one had from offset 20 of partition 0 on is gone" in told
    assert "`_topic` accounts#2" in told
    shutil.rmtree(lake.settings.checkpoints)  # it is known all the same
    assert "expected id-1" in lake.refused()
    with pytest.raises(LedgerError, match="expected id-1"):
        resume_offsets(lake.settings, BRONZE_ACCOUNTS, "accounts")
    lake.accept()
    lake.kafka = replace(lake.kafka, topic_id="id-3")  # and once more, before bronze went on
    assert "`_topic` accounts#3" in lake.refused()
    lake.accept()
    found = lake.open()
    assert (found.label, found.known, starts(found), found.first_batch) == ("accounts#3", {}, {"0": 0, "1": 0}, 3)
    incarnations = sorted(
        (row["incarnation"], row["_topic"], row["topic_id"], row["who"]) for row in control.read(lake.settings, TOPICS).to_pylist()
    )
    assert incarnations == [(1, "accounts", "id-1", None), (2, "accounts#2", "id-2", "Ann"), (3, "accounts#3", "id-3", "Ann")]

    lake.write("accounts#3", {0: range(5)})
    shutil.rmtree(lake.settings.checkpoints)
    found = lake.open()
    assert (found.known, found.first_batch) == ({"0": 4}, 4)
    assert resume_offsets(lake.settings, BRONZE_ACCOUNTS, "accounts") == ("accounts#3", {"0": 0, "1": 0})
    lake.kafka = replace(lake.kafka, begins={"0": 7, "1": 2})
    assert "offsets 5 to 6 of partition 0, 0 to 1 of partition 1, which" in lake.refused()
    lake.accept()
    assert [hole[0] for hole in lake.holes()] == ["accounts#3", "accounts#3"]


def test_a_log_that_the_broker_lost(lake: Lake) -> None:
    lake.kafka = replace(lake.kafka, ends={"0": 15})
    told = lake.refused()
    assert "Kafka's log ends before offset 15 of partition 0, expected it to reach offset 20 of partition 0" in told
    lake.accept()
    lake.kafka = replace(lake.kafka, ends={"0": 40})
    found = lake.open("earliest")
    assert (found.label, starts(found)) == ("accounts#2", {"0": 15})
    assert lake.holes() == []


def test_partitions_that_came_before_the_first_batch(lake: Lake) -> None:
    """Spark insists on a starting point for each."""
    found = lake.open("latest")
    lake.kafka = replace(lake.kafka, begins={"0": 0, "1": 0}, ends={"0": 120, "1": 9})
    assert starts(lake.open()) == {"0": 100, "1": 0}
    assert lake.open().folder != found.folder


def test_a_checkpoint_of_an_older_version(lake: Lake) -> None:
    """It has no label, and nothing is in control.topics."""
    shutil.rmtree(TOPICS.path(lake.settings))
    file = lake.folder.parent / "generation.json"
    facts = json.loads(file.read_text())
    del facts["label"]
    file.write_text(json.dumps(facts | {"known": {"accounts": {"0": 3}}}))
    lake.kafka = replace(lake.kafka, topic_id="id-2")
    assert "expected id-1" in lake.refused()
    lake.kafka = replace(lake.kafka, topic_id="id-1")
    found = lake.open()
    assert (found.folder, found.label, found.known) == (lake.folder, "accounts", {"0": 3})
    assert control.read(lake.settings, TOPICS)["topic_id"].to_pylist() == ["id-1"]


def test_a_log_that_the_broker_lost_while_the_query_ran_and_that_has_grown_again(lake: Lake) -> None:
    """Spark planned the batch after the loss; what came since then has the offsets of lost records."""
    lake.plan(2, {"0": 15})
    lake.kafka = replace(lake.kafka, ends={"0": 200})
    assert "Kafka's log ends before offset 15 of partition 0, expected it to reach offset 20 of partition 0" in lake.refused()
    lake.accept()
    found = lake.open()
    assert (found.label, found.known, starts(found)) == ("accounts#2", {}, {"0": 15})
