"""Exports of a release: the rows and their days, files of a size, what stays and goes when one is run again, to a folder and to S3."""

import io
import random
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from spark_jobs import run
from spark_jobs.export import bucket, folder, job
from spark_jobs.lake import tables
from spark_jobs.runtime import session
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.settings import Settings
from tests.support import targets
from tests.support.publishing import released_on
from tests.support.targets import Bucket, Days, Folder, Place, days_of, leftovers, rows_of, told
from tests.support.warehouse import DAY, at, bronze, good_rows, settings_of, transaction, write

pytestmark = pytest.mark.spark

NAME = "silver.transactions"
POINTS = [
    f"{point} export"
    for point in ("before staging an", "after staging an", "between two files of an", "before a day of an", "after a day of an")
]
LATE = "silver.transactions_late"
WEEK = "--start 2013-01-01 --end 2013-01-08"


@pytest.fixture(scope="module")
def endpoint(spark: SparkSession) -> Iterator[str]:
    """An S3 service; Spark knows its keys (in a process of its own, from the environment)."""
    session: Any = spark
    conf = session.sparkContext._jsc.hadoopConfiguration()
    conf.set("fs.s3a.access.key", targets.KEYS["AWS_ACCESS_KEY_ID"])
    conf.set("fs.s3a.secret.key", targets.KEYS["AWS_SECRET_ACCESS_KEY"])
    with targets.s3_server() as address:
        yield address


@pytest.fixture(params=["folder", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    if request.param == "folder":
        return Folder(tmp_path / "target")
    endpoint = request.getfixturevalue("endpoint")
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    return Bucket(endpoint, f"some/{tmp_path.name}")


@pytest.fixture(autouse=True)
def _one_session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "start_session", lambda *_, **__: spark)


def day_of(number: int) -> str:
    return f"2013-01-{number:02}"


def moved(number: int, hours: int, batch: int) -> dict[str, Any]:
    """A transaction so many hours after the 2nd of January."""
    return transaction(number, at(3, number, batch), "Credit", "1.23", who=1, hour=hours)


def late_rows(count: int) -> pa.Table:
    """Rows of three days that hardly compress: half of them on the first one."""
    chance = random.Random(1)
    rows = {
        "transaction_id": [b64encode(chance.randbytes(24)).decode() for _ in range(count)],
        "event_at": [DAY + timedelta(days=max(0, number % 4 - 1), microseconds=number) for number in range(count)],
    }
    schema = pa.schema(tables.TRANSACTIONS_LATE.delta_schema().to_arrow())
    nothing = {field.name: pa.nulls(count, field.type) for field in schema if field.name not in rows}
    return pa.table({**{name: pa.array(values, schema.field(name).type) for name, values in rows.items()}, **nothing}).select(schema.names)


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Release 1: four rows on the 2nd, one on the 3rd, two on the 5th. Then one on the 3rd goes, one on the 4th comes: release 2.

    What came after that is in no release.
    """
    made = settings_of(tmp_path_factory.mktemp("export"))
    write(made, good_rows())
    write_deltalake(str(tables.TRANSACTIONS_LATE.path(made)), late_rows(96_000), mode="overwrite")
    first = [moved(10, 24, 2), moved(11, 72, 2), moved(12, 95, 2)]
    write(made, {NAME: first, "bronze.transactions": [bronze(at(3, 9, 3), b"later", b"{}")]})
    released_on(made, datetime.now(UTC))
    kept = [row for row in [*good_rows()[NAME], *first] if row["transaction_id"] != "T10"]
    write(made, {NAME: [*kept, moved(13, 48, 3)]}, mode="overwrite")
    released_on(made, datetime.now(UTC), first=2)
    write(made, {NAME: [moved(14, 49, 4)]})
    return made


def export(settings: Settings, place: Place, words: str) -> None:
    options = run.parse_arguments(["export", "--to", place.url, *words.split()])
    run.JOBS["export"](settings, options)


def ids(days: Days) -> dict[str, set[str]]:
    return {day: {row["transaction_id"] for row in rows} for day, rows in rows_of(days).items()}


FIRST = {day_of(2): {"T1", "T2", "T3", "T4"}, day_of(3): {"T10"}, day_of(5): {"T11", "T12"}}
SECOND = {day_of(2): {"T1", "T2", "T3", "T4"}, day_of(4): {"T13"}, day_of(5): {"T11", "T12"}}


def test_a_release_in_date_folders_and_again_when_another_one_is_out(settings: Settings, place: Place) -> None:
    export(settings, place, f"--table {NAME} {WEEK} --release 1")
    found = days_of(place, NAME)
    assert ids(found) == FIRST
    assert {file for files in found.values() for file in files} == {"part-00000.parquet"}
    table = found[day_of(2)]["part-00000.parquet"]
    assert sorted(table.to_pylist(), key=lambda row: str(row["transaction_id"])) == good_rows()[NAME]
    kinds = {name: table.schema.field(name).type for name in ("event_at", "amount", "event_on")}
    assert kinds == {"event_at": pa.timestamp("us", "UTC"), "amount": pa.decimal128(18, 2), "event_on": pa.date32()}
    assert table.column_names == list(tables.SILVER_TRANSACTIONS.columns)
    stored = pq.ParquetFile(io.BytesIO(place.files()[f"{NAME}/{day_of(2)}/part-00000.parquet"])).schema.column(3)
    assert (stored.name, stored.physical_type, stored.logical_type.type) == ("event_at", "INT64", "TIMESTAMP")
    told_first = told(place, NAME)[day_of(2)]
    assert (told_first["release"], told_first["rows"], told_first["covers"]) == (1, 4, [["2013-01-02T00:00:00Z", "2013-01-03T00:00:00Z"]])
    export(settings, place, f"--table {NAME} {WEEK}")  # the day that has no rows any more is gone, the new one there
    assert ids(days_of(place, NAME)) == SECOND
    assert {day: (day_told["release"], day_told["rows"]) for day, day_told in told(place, NAME).items()} == {
        day_of(2): (2, 4),
        day_of(4): (2, 1),
        day_of(5): (2, 2),
    }
    assert leftovers(place) == []


def test_what_lies_outside_the_range_stays(settings: Settings, tmp_path: Path) -> None:
    """Of a day that is exported in parts, every part; all of them of the same release."""
    place = Folder(tmp_path)
    export(settings, place, f"--table {NAME} --release 1 --start 2013-01-02T09:00 --end 2013-01-02T11:00")
    assert ids(days_of(place, NAME)) == {day_of(2): {"T1", "T2"}}
    export(settings, place, f"--table {NAME} --start 2013-01-02T11:00 --end 2013-01-05T23:00")
    assert ids(days_of(place, NAME)) == {day_of(2): {"T1", "T2", "T4"}, day_of(4): {"T13"}, day_of(5): {"T11"}}
    assert told(place, NAME)[day_of(2)]["covers"] == [["2013-01-02T09:00:00Z", "2013-01-03T00:00:00Z"]]
    assert told(place, NAME)[day_of(2)]["release"] == 2
    export(settings, place, f"--table {NAME} --start 2013-01-04 --end 2013-01-05")
    assert set(ids(days_of(place, NAME))) == {day_of(2), day_of(4), day_of(5)}


@pytest.mark.parametrize(
    ("name", "when", "expected"),
    [
        ("bronze.transactions", "2026-01-01", 6),  # not the batch after the release's last
        ("silver.transactions_quarantine", "2026-01-01", 1),  # at the time of its bronze record
        ("gold.debit_share", "2013-01-02", 1),  # by a date
    ],
)
def test_every_kind_of_time(settings: Settings, tmp_path: Path, name: str, when: str, expected: int) -> None:
    export(settings, Folder(tmp_path), f"--table {name} --start {when}T00:00:00+00:00 --end {when}T00:00:01Z")
    (table,) = days_of(Folder(tmp_path), name)[when].values()
    assert (table.num_rows, table.column_names) == (expected, list(tables.BY_NAME[name].columns))


def test_files_are_rolled_by_size(settings: Settings, place: Place) -> None:
    export(settings, place, f"--table {LATE} {WEEK} --file-mb 1")
    found = days_of(place, LATE)
    sizes = {day: [file["bytes"] for file in each["files"]] for day, each in told(place, LATE).items()}
    assert {day: len(files) for day, files in sizes.items()} == {day_of(2): 2, day_of(3): 1, day_of(4): 1}
    assert sizes[day_of(3)][0] < 30 * 24_000  # their ids hold 24 bytes, written in 32 characters
    assert all(0.7 < size / (1 << 20) < 1.3 for size in sizes[day_of(2)][:1])
    assert max(size for files in sizes.values() for size in files) < 1.3 * (1 << 20)
    assert sum(table.num_rows for files in found.values() for table in files.values()) == 96_000
    assert leftovers(place) == []


class KilledError(Exception):
    """In place of the end of the process."""


class Death:
    """A process that dies at the first point at which none died before, and from then on does nothing any more."""

    def __init__(self) -> None:
        self.points: list[str] = []
        self.is_dead = False

    def kill_point(self, name: str) -> None:
        if not self.is_dead and name not in self.points:
            self.points.append(name)
            self.is_dead = True
        if self.is_dead:
            raise KilledError(name)

    def unless_dead(self, end: Callable[[Any], None]) -> Callable[[Any], None]:
        return lambda target: None if self.is_dead else end(target)


@pytest.fixture
def death(monkeypatch: pytest.MonkeyPatch) -> Death:
    made = Death()
    for module in (job, folder, bucket):
        monkeypatch.setattr(module, "kill_point", made.kill_point)
    for kind in (folder.Folder, bucket.Bucket):
        monkeypatch.setattr(kind, "end", made.unless_dead(kind.end))
    return made


def test_killed_at_every_point_a_day_is_the_old_or_the_new_one(settings: Settings, place: Place, death: Death) -> None:
    """Nothing of a run that died is in sight, and the next one removes it."""
    death.points = [*POINTS]
    export(settings, place, f"--table {NAME} {WEEK} --release 1")
    death.points = POINTS[:2] if isinstance(place, Bucket) else []  # staging is the same for both
    while True:
        death.is_dead = False
        try:
            export(settings, place, f"--table {NAME} {WEEK}")
            break
        except KilledError:
            for day, found in ids(days_of(place, NAME)).items():
                assert found in (FIRST.get(day), SECOND.get(day))
    assert death.points == POINTS
    assert ids(days_of(place, NAME)) == SECOND
    assert leftovers(place) == []


def test_a_day_of_several_objects_that_was_half_written_is_taken_back(
    settings: Settings, endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, death: Death
) -> None:
    """On S3 such a day is whole for those who read what `_SUCCESS` names; the next run takes away what an earlier one has half written."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    place = Bucket(endpoint, f"several/{tmp_path.name}")
    death.points = [point for point in POINTS if point != "between two files of an export"]
    with pytest.raises(KilledError):
        export(settings, place, f"--table {LATE} {WEEK} --file-mb 1")
    assert told(place, LATE) == {}
    assert leftovers(place) != []
    assert days_of(place, LATE) != {}
    death.is_dead = False
    export(settings, place, f"--table {LATE} --start 2013-01-04 --end 2013-01-05")
    assert set(days_of(place, LATE)) == set(told(place, LATE)) == {day_of(4)}
    assert leftovers(place) == []


def test_a_reader_never_sees_a_part_of_a_day(settings: Settings, tmp_path: Path) -> None:
    """Read again and again while it is replaced: each time a day of one file is there, and each time it is whole."""
    place, seen, stop = Folder(tmp_path), [], threading.Event()
    words = f"--table {NAME} --start 2013-01-02 --end 2013-01-03"
    export(settings, place, words)

    def read() -> None:
        while not stop.is_set():
            seen.append({path.name: pq.read_table(path).num_rows for path in (tmp_path / NAME / day_of(2)).glob("part-*")})

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for number in (1, 2):
            export(settings, place, f"{words} --release {number}")
    finally:
        stop.set()
        reader.join()
    assert len(seen) > 10
    assert all(each == {"part-00000.parquet": 4} for each in seen)


def test_what_others_wrote_is_left_alone(settings: Settings, place: Place) -> None:
    strange = f"{NAME}/{day_of(2)}/theirs.parquet"
    place.put(strange)
    with pytest.raises(LedgerError, match=r"2013-01-02 was not written by an export of silver\.transactions"):
        export(settings, place, f"--table {NAME} {WEEK}")
    assert list(place.files()) == [strange]


def test_a_file_that_somebody_put_into_a_date_folder_is_not_replaced_with_it(settings: Settings, place: Place) -> None:
    export(settings, place, f"--table {NAME} {WEEK}")
    place.put(f"{NAME}/{day_of(2)}/theirs.parquet")
    before = place.files()
    with pytest.raises(LedgerError, match=r"2013-01-02 holds theirs\.parquet, which _SUCCESS does not name"):
        export(settings, place, f"--table {NAME} {WEEK}")
    assert place.files() == before


def test_a_bucket_that_is_not_there_is_one_line(settings: Settings, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    nowhere = Bucket(endpoint, "x")
    nowhere.url = "s3://no-such-bucket/x"
    with pytest.raises(LedgerError, match=r"s3a://no-such-bucket/x/silver\.transactions: .*bucket.*: check the bucket") as raised:
        export(settings, nowhere, f"--table {NAME} {WEEK}")
    assert "\n" not in str(raised.value)
    assert targets.KEYS["AWS_SECRET_ACCESS_KEY"] not in str(raised.value)
