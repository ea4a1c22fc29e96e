"""Object storage: two writers at once, a copy that was interrupted, a store that is busy or slow. Nothing lost, nothing twice."""

import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from obstore.exceptions import BaseError

from spark_jobs import control, run
from spark_jobs.lake import leases, tables
from spark_jobs.lake.tables import DISTRICTS
from spark_jobs.runtime import objects, storage
from spark_jobs.runtime.errors import first_line
from spark_jobs.runtime.settings import Settings, read_settings
from tests.support import databases
from tests.support.object_storage import Door, in_storage, running_s3

COMMITS = 12
# A writer that knows of no lease: it appends one row at a time, and prints the number of each that was committed.
_JVM = """
import sys
from spark_jobs.lake.tables import DISTRICTS
from spark_jobs.runtime.session import start_session
from spark_jobs.runtime.settings import read_settings

settings, first = read_settings(), int(sys.argv[1])
spark = start_session(settings, "writer")
path = spark._jvm.org.apache.hadoop.fs.Path(f"{{settings.warehouse}}/of-{{first}}")
files = path.getFileSystem(spark._jsc.hadoopConfiguration())
one, other = (files.create(path, False) for _ in range(2))  # as two writers do that both found no such file
one.close()
try:
    other.close()
except Exception as error:
    assert "412" in str(error) or "RemoteFileChanged" in str(error), error
    print("ready", flush=True)
sys.stdin.readline()
for number in range(first, first + {commits}):
    row = spark.createDataFrame([(number, "theirs", None)], DISTRICTS.ddl)
    try:
        row.write.format("delta").mode("append").save(str(DISTRICTS.path(settings)))
    except Exception as error:
        print("failed", type(error).__name__, str(error).splitlines()[0], file=sys.stderr)
    else:
        print(number, flush=True)
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Door, dict[str, str]]]:
    with running_s3(tmp_path_factory.mktemp("s3")) as store:
        yield store


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with databases.running_postgres(tmp_path_factory.mktemp("postgres")) as url:
        yield url


@pytest.fixture
def door(store: tuple[Door, dict[str, str]], monkeypatch: pytest.MonkeyPatch) -> Door:
    """The server, whose clients this process and its children may be."""
    door, access = store
    for name, value in access.items():
        monkeypatch.setenv(name, value)
    return door


@pytest.fixture
def settings(door: Door, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    for name, value in {"LEDGER_HOME": str(tmp_path), "LEDGER_POSTGRES_URL": url, **in_storage(tmp_path.name)}.items():
        monkeypatch.setenv(name, value)
    settings = read_settings()
    tables.ensure_tables(settings, [DISTRICTS])
    return settings


def append(settings: Settings, number: int) -> None:
    with leases.hold(settings, [DISTRICTS], "a test"):
        control.append_under_lease(settings, DISTRICTS, [{"district_id": number, "name": "ours", "region": None}])


def numbers(settings: Settings) -> list[int]:
    return sorted(row["district_id"] for row in control.read(settings, DISTRICTS).to_pylist())


def test_of_two_writers_at_once_one_fails_or_repeats_and_no_row_is_lost(settings: Settings) -> None:
    """Two JVMs and delta-rs append to one table without a lease, which no job does: S3 itself lets only one create a commit."""
    words, pipe = [sys.executable, "-c", _JVM.format(commits=COMMITS)], subprocess.PIPE
    writers = [subprocess.Popen([*words, str(first)], stdin=pipe, stdout=pipe, stderr=pipe, text=True) for first in (1000, 2000)]
    try:
        for writer in writers:
            assert writer.stdout
            assert writer.stdout.readline() == "ready\n"
        for writer in writers:
            assert writer.stdin
            writer.stdin.write("\n")
            writer.stdin.flush()
        ours = list(range(COMMITS))
        for number in ours:
            append(settings, number)
        ended = [writer.communicate(timeout=240) for writer in writers]
    finally:
        for writer in writers:
            writer.kill()
    committed = [*ours, *(int(number) for said, _ in ended for number in said.split())]
    assert all(said for said, _ in ended), f"each has written something: {ended}"
    assert numbers(settings) == sorted(committed)


def test_only_one_of_many_makes_a_file_that_must_not_change(settings: Settings) -> None:
    """The name under which Postgres knows the warehouse: with two, hosts would have leases of their own."""
    file = settings.warehouse / "name"
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: storage.create(file, f"name {number}"), range(8)))
        first = file.read_text()
        list(pool.map(lambda number: storage.create(file, f"name {number}"), range(8, 16)))
    assert file.read_text() == first


def test_a_copy_that_was_interrupted_is_none_and_the_next_one_is_whole(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    draft, target = settings.checkpoints / ".draft", settings.checkpoints / "copy"
    for name in ("a/1", "b/2", "last", "z/3"):
        (draft / name).write_text(name)
    copied, copy = list[str](), objects.copy

    def copy_two(source: str, to: str) -> None:
        if len(copied) == 2:
            raise OSError("the machine ends here")
        copied.append(to)
        copy(source, to)

    monkeypatch.setattr(objects, "copy", copy_two)
    with pytest.raises(OSError, match="the machine ends here"):
        storage.publish(draft, target, "last")
    monkeypatch.setattr(objects, "copy", copy)
    assert (target / "a/1").exists()
    assert not storage.is_published(target, "last")
    (draft / "a/1").unlink()  # the next copy has not all that the first had
    storage.publish(draft, target, "last")
    assert storage.is_published(target, "last")
    assert sorted(str(file.relative_to(target)) for file in storage.files_below(target)) == ["b/2", "last", "z/3"]
    assert not storage.files_below(draft)
    storage.remove(target)
    assert not storage.files_below(target)


def test_marks_of_folders_are_no_files(settings: Settings) -> None:
    """Hadoop writes `folder/` for a folder that it makes: a query's generation would be one too many, and a copy would fail."""
    folder = settings.checkpoints / "query/7"
    _mark(f"{storage._key(folder)}/")
    (folder / "metadata").write_text("{}")
    assert list(storage.names(folder)) == ["metadata"]
    assert [str(file) for file in storage.files_below(folder)] == [f"{folder}/metadata"]
    storage.copy(folder, settings.checkpoints / "query/8")
    assert list(storage.names(settings.checkpoints / "query/8")) == ["metadata"]


def test_a_store_that_is_busy_ends_a_commit_with_a_line_that_says_so_and_loses_none(
    door: Door, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    append(settings, 1)
    door.be_busy_for(60)
    with pytest.raises((OSError, BaseError), match="Generic S3 error") as raised:
        append(settings, 2)
    assert "503 Service Unavailable" in first_line(raised.value)
    assert door.turned_away
    caplog.clear()
    assert run.main(["release"]) == 1
    says = r"the object storage did not do what release asked \(Generic S3 error: .*503.*\): see that it answers and has room, and run .*"
    assert re.fullmatch(says, caplog.records[-1].getMessage())
    assert len([record for record in caplog.records if record.levelname == "ERROR"]) == 1
    door.be_busy_for(0.5)  # shorter than the clients wait
    append(settings, 3)
    assert numbers(settings) == [1, 3]


def test_a_store_that_is_slow_delays_a_commit(door: Door, settings: Settings) -> None:
    door.be_slow(0.2)
    try:
        append(settings, 1)
    finally:
        door.be_slow(0)
    assert numbers(settings) == [1]


def _mark(path: str) -> None:
    import boto3

    bucket, _, key = path.partition("/")
    boto3.client("s3").put_object(Bucket=bucket, Key=key, Body=b"")
