"""Which small files belong together, and how many records a batch can bring: without Spark."""

import random
from pathlib import Path

import pyarrow as pa
import pytest

from spark_jobs.bronze.checkpoints import Checkpoint
from spark_jobs.lake import compaction, few_rows
from spark_jobs.lake.compaction import DataFile
from spark_jobs.lake.tables import TRANSACTION_IDS, ensure_tables
from spark_jobs.lake.txn import Txn, applied
from spark_jobs.runtime.settings import read_settings


def file(place: int | None, size: int, partition: str = "") -> DataFile:
    return DataFile(path=f"{partition}/{place}", partition=partition, bytes=size, rows=1, place=place)


def planned(files: list[DataFile], target: int = 100, released: int | None = None) -> list[list[int | None]]:
    random.Random(1).shuffle(files)
    return [[each.place for each in joined] for joined in compaction.plan(files, target, released)]


def test_neighbours_are_joined_up_to_the_target() -> None:
    assert planned([file(place, 30) for place in range(8)]) == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert planned([file(0, 30)]) == []
    assert planned([file(0, 10), file(1, 75), file(2, 10)]) == []  # a large one stays, and lies between
    assert planned([file(0, 10), file(1, 74), file(2, 10)]) == [[0, 1, 2]]
    assert planned([file(place, 10, f"day={place // 2}") for place in range(4)]) == [[0, 1], [2, 3]]
    assert planned([file(None, 10), file(1, 10)]) == [[1, None]]
    assert planned([file(0, 41), file(1, 20), file(2, 10), file(3, 10)]) == [[1, 2, 3]]  # it would be written again for less than itself
    assert planned([file(0, 6), file(1, 1)]) == [[0, 1]]  # so small that it does not matter


def test_rows_that_are_not_released_stay_apart() -> None:
    """Else a file with both would tell that rows have waited since the first of it came."""
    files = [file(place, 10) for place in range(1, 7)]
    assert planned(files, released=3) == [[1, 2, 3], [4, 5, 6]]
    assert planned(files, released=0) == planned(files) == [[1, 2, 3, 4, 5, 6]]


def test_small_files_without_an_order_are_joined_in_one_commit_once_there_are_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large one stays. How far the table has come is still known, and readers of its changes see none."""
    settings, table = read_settings({"LEDGER_HOME": str(tmp_path)}), TRANSACTION_IDS
    ensure_tables(settings, [table])
    schema, sizes, chance = pa.schema(table.delta_schema().to_arrow()), [20_000, *range(1, 6)], random.Random(5)
    for batch, size in enumerate(sizes, start=1):
        rows = [{"id_hash": chance.getrandbits(62), "_partition": 0, "_offset": 7, "_batch": batch} for _ in range(size)]
        few_rows.append_batches(pa.Table.from_pylist(rows), settings, table, Txn("silver", batch))
    before = table.open(settings)
    monkeypatch.setitem(compaction._TARGETS, "silver", 2 * 64 * 2**10)

    assert [compaction.join_unordered(settings, table, most) for most in (5, 4, 4)] == [0, 5, 0]
    after = table.open(settings)
    assert after.version() == before.version() + 1
    assert sorted(pa.table(after.get_add_actions())["num_records"].to_pylist()) == [sum(range(1, 6)), 20_000]
    assert sorted(after.to_pyarrow_table().to_pylist(), key=str) == sorted(before.to_pyarrow_table().to_pylist(), key=str)
    assert pa.table(after.to_pyarrow_table()).schema.equals(schema)
    assert applied(settings, table, "silver") == len(sizes)
    assert '"dataChange":true' not in (table.path(settings) / "_delta_log" / f"{after.version():020}.json").read_text()


def test_a_row_is_written_again_a_few_times_only_whatever_the_number_of_runs() -> None:
    """4,000 batches of 1, some of 9, maintenance after every fourth, a target of 1,000: files stay few, and so does what is written."""
    chance, target, files, written = random.Random(5), 1_000, list[DataFile](), 0
    for batch in range(4_000):
        files.append(file(batch, chance.choice((1, 1, 1, 9))))
        if batch % 4 == 0:
            for joined in compaction.plan(files, target):
                size, place = sum(each.bytes for each in joined), joined[0].place
                files = [each for each in files if each not in joined]
                files.append(file(place, size))
                written += size
            total = sum(each.bytes for each in files)
            assert len(files) < total / (target / 2) + 20
    assert len(files) < 40
    assert written < 10 * sum(each.bytes for each in files)


@pytest.mark.parametrize(
    ("before", "planned", "expected"),
    [
        ('v1\n{}\n{"t":{"0":5,"1":7}}', 'v1\n{}\n{"t":{"0":9,"1":7}}', {0: range(5, 9), 1: range(7, 7)}),
        ('v1\n{}\n{"t":{"0":5}}', 'v1\n{}\n{"t":{"0":5,"1":3}}', {0: range(5, 5), 1: range(3)}),  # a partition that is new
        (None, 'v1\n{}\n{"t":{"0":5}}', None),
        ("", 'v1\n{}\n{"t":{"0":5}}', None),
        ('v1\n{}\n{"t":{"0":5}}', "v1\n{}\n{", None),
    ],
)
def test_which_offsets_a_batch_can_bring_is_known_beforehand(
    tmp_path: Path, before: str | None, planned: str, expected: dict[int, range] | None
) -> None:
    (tmp_path / "offsets").mkdir()
    if before is not None:
        (tmp_path / "offsets" / "3").write_text(before)
    (tmp_path / "offsets" / "4").write_text(planned)
    checkpoint = Checkpoint(tmp_path.parent, tmp_path.name, 1, "{}", {}, "id", "t")
    if expected is None:
        with pytest.raises((OSError, ValueError)):
            checkpoint.offsets(4)
    else:
        assert checkpoint.offsets(4) == expected
