"""What an export may be asked: times, targets, tables, and what is refused before anything starts."""

from argparse import Namespace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from spark_jobs import run
from spark_jobs.export.days import Day, Part, joined, named, read_day, whole, within
from spark_jobs.export.request import check
from spark_jobs.lake import tables
from spark_jobs.runtime.errors import LedgerError, SettingsError
from spark_jobs.runtime.settings import ROOT, Settings, read_settings
from spark_jobs.runtime.storage import s3_access
from spark_jobs.runtime.times import ALWAYS, parse_time

NOW = datetime(2026, 11, 21, 20, 30, tzinfo=UTC)
UNSET: dict[str, Any] = dict.fromkeys(("table", "postgres", "start", "end", "release", "date_column", "partition_column"))
TABLE = UNSET | {"to": "/x", "file_mb": 128, "table": "silver.transactions", "start": "2013-01-01", "end": "2013-01-02"}
POSTGRES = UNSET | {"to": "/x", "file_mb": 128, "postgres": "public.accounts"}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    own = {"LEDGER_HOME": str(tmp_path / "home"), "LEDGER_CHECKPOINTS": str(tmp_path / "elsewhere")}
    return read_settings({**own, "LEDGER_POSTGRES_URL": "postgresql://ledger@127.0.0.1:9/ledger"})


def moment(day: int, hour: int = 0) -> datetime:
    return datetime(2013, 1, day, hour, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2013-01-05", moment(5)),
        ("2013-01-05T10", moment(5, 10)),
        ("2013-01-05T10:00:00Z", moment(5, 10)),
        ("2013-01-05T10:00+02:00", moment(5, 8)),
    ],
)
def test_times_are_utc_where_they_have_no_zone(text: str, expected: datetime) -> None:
    assert parse_time(text, "--start") == expected


@pytest.mark.parametrize("text", ["", "yesterday", "2013-13-01", "0001-01-01T00:00+05:00"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match=r"--end: found .*, expected a date or time in ISO 8601"):
        parse_time(text, "--end")


@pytest.mark.parametrize(
    ("to", "folder"),
    [
        ("s3a://bucket/a/b", "s3a://bucket/a/b/silver.transactions"),
        ("s3://bucket/a/", "s3a://bucket/a/silver.transactions"),
        ("s3a://bucket", "s3a://bucket/silver.transactions"),
        ("/some/folder/", "/some/folder/silver.transactions"),
        ("file:///some/a%20folder", "/some/a folder/silver.transactions"),
    ],
)
def test_targets(settings: Settings, to: str, folder: str) -> None:
    asked = check(Namespace(**TABLE | {"to": to}), settings, NOW)
    assert (asked.folder, asked.bucket) == (folder, "bucket" if folder.startswith("s3a") else None)


@pytest.mark.parametrize(
    ("to", "told"),
    [
        ("s3a://AKIA:canary@bucket/a", "keys come from the environment"),
        ("s3a://bucket/canary?x", "keys come from the environment"),
        ("s3a:///canary", "expected a folder, file:///folder or s3a://bucket/prefix"),
        ("gs://canary/a", "expected a folder"),
        ("/a/b%20c", "expected a path without any of %"),
        ("/a/2013-*", "expected a path without any of %"),
    ],
)
def test_targets_that_are_refused(settings: Settings, to: str, told: str) -> None:
    with pytest.raises(SettingsError, match=told) as raised:
        check(Namespace(**TABLE | {"to": to}), settings, NOW)
    assert "canary" not in str(raised.value)


def test_a_target_among_the_pipelines_own_tables_is_refused(settings: Settings, tmp_path: Path) -> None:
    settings.warehouse.mkdir(parents=True)
    (tmp_path / "link").symlink_to(settings.warehouse)
    for to in (settings.warehouse, settings.warehouse / "silver", tmp_path / "link/x", f"file://{settings.checkpoints}/x"):
        with pytest.raises(SettingsError, match=r"which is inside the (warehouse|checkpoints) .*: expected a folder apart from it"):
            check(Namespace(**TABLE | {"to": str(to)}), settings, NOW)


def test_a_target_anywhere_in_the_home_is_refused(settings: Settings) -> None:
    for to in (settings.home, settings.home / "stack/kafka", settings.home / "export", settings.quality):
        with pytest.raises(SettingsError, match=r"which is inside LEDGER_HOME .*: expected a folder apart from it"):
            check(Namespace(**TABLE | {"to": str(to)}), settings, NOW)
    assert check(Namespace(**TABLE | {"to": f"{settings.home}-export"}), settings, NOW).url == f"{settings.home.resolve()}-export"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"table": "silver.nothing"}, "--table: found 'silver.nothing', expected one of bronze.transactions"),
        ({"table": "control.batches"}, "--table: found 'control.batches'"),
        ({"start": None}, "found no --start or no --end"),
        ({"start": "2013-01-02"}, "found --start 2013-01-02T00:00:00Z and --end 2013-01-02T00:00:00Z, expected a start before the end"),
        ({"date_column": "x"}, "are for --postgres"),
    ],
)
def test_tables_that_are_refused(settings: Settings, changes: dict[str, Any], told: str) -> None:
    with pytest.raises(SettingsError, match=told):
        check(Namespace(**TABLE | changes), settings, NOW)


def test_a_table_of_postgres(settings: Settings) -> None:
    today = check(Namespace(**POSTGRES), settings, NOW)
    assert (today.start, today.end) == (datetime(2026, 11, 21, tzinfo=UTC), datetime(2026, 11, 22, tzinfo=UTC))
    always = check(Namespace(**POSTGRES | {"date_column": "made_at"}), settings, NOW)
    assert (always.start, always.end) == ALWAYS
    assert always.is_endless
    assert not today.is_endless


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"postgres": "accounts"}, "expected schema.table"),
        ({"postgres": "a.b.c"}, "expected schema.table"),
        ({"postgres": "public.a/b"}, "expected schema.table"),
        ({"start": "2013-01-01"}, "--start and --end need --date-column"),
        ({"release": 1}, "Postgres has no releases"),
    ],
)
def test_tables_of_postgres_that_are_refused(settings: Settings, changes: dict[str, Any], told: str) -> None:
    with pytest.raises(SettingsError, match=told):
        check(Namespace(**POSTGRES | changes), settings, NOW)


def test_every_table_has_a_time() -> None:
    """By a column, or (of what Spark looks up in bronze) by its record's coordinates."""
    found = {name: table.time_column for name, table in tables.BY_NAME.items()}
    by_record = [name for name, column in found.items() if column is None]
    assert by_record == [
        "silver.transactions_duplicates",
        *(f"silver.{topic}_quarantine" for topic in ("transactions", "customers", "accounts")),
    ]
    assert all("_offset" in tables.BY_NAME[name].columns for name in by_record)
    assert (found["gold.account_days"], found["silver.customers"], found["gold.customer_activity"]) == (
        "day",
        "valid_from",
        "last_event_at",
    )


def test_the_page_tells_the_time_of_every_table() -> None:
    page = (ROOT / "include/docs/export.md").read_text()
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| `")]
    told = {name.strip("`"): time.split("`")[1:] for names, time in rows for name in names.split(", ")}
    by_record = ["_timestamp", " of its bronze record"]
    assert told == {name: [table.time_column, ""] if table.time_column else by_record for name, table in tables.BY_NAME.items()}


def test_ranges_are_joined_and_cut_by_days() -> None:
    assert joined([(moment(3), moment(4)), (moment(1), moment(2)), (moment(2), moment(2, 5))]) == (
        (moment(1), moment(2, 5)),
        (moment(3), moment(4)),
    )
    assert within([(moment(1, 5), moment(3, 5))], moment(2).date()) == (whole(moment(2).date()),)
    assert within([(moment(1, 5), moment(3, 5))], moment(3).date()) == ((moment(3), moment(3, 5)),)
    assert within([(moment(1, 5), moment(3))], moment(3).date()) == ()
    assert whole(date.max)[1].date() == date.max


def test_what_a_day_says_is_read_again() -> None:
    day = Day(moment(5).date(), {"table": "a.b", "release": 3}, (whole(moment(5).date()),), (Part("part-00000.parquet", 2, 700),))
    assert read_day(day.day, day.to_json(), "a.b", "place") == day
    for text in (None, "", "{}", "[1]", day.to_json().replace("a.b", "a.c"), day.to_json().replace("2013-01-05", "2013-01-06")):
        with pytest.raises(LedgerError, match=r"^place was not written by an export of a.b: found no such _SUCCESS"):
            read_day(day.day, text, "a.b", "place")


def test_the_only_file_of_a_day_is_called_the_same_by_every_run() -> None:
    one, two = Part("x/part-0-u.c000.snappy.parquet", 1, 1), Part("x/part-0-v.c001.snappy.parquet", 1, 1)
    assert named([one], "r") == [(one, "part-00000.parquet")]
    assert named([two, one], "r") == [(one, "part-00000-r.parquet"), (two, "part-00001-r.parquet")]


def test_where_s3_is_comes_from_the_environment_and_no_key_is_a_setting() -> None:
    keys = {"AWS_ACCESS_KEY_ID": "canary", "AWS_SECRET_ACCESS_KEY": "canary", "AWS_SESSION_TOKEN": "canary"}
    assert s3_access({**keys, "AWS_ENDPOINT_URL": "http://127.0.0.1:9000", "AWS_REGION": "eu-west-1"}) == {
        "fs.s3a.endpoint": "http://127.0.0.1:9000",
        "fs.s3a.path.style.access": "true",
        "fs.s3a.endpoint.region": "eu-west-1",
    }
    assert s3_access(keys) == {}
    with pytest.raises(SettingsError, match="AWS_ENDPOINT_URL: found something else than an address") as raised:
        s3_access({"AWS_ENDPOINT_URL": "http://user:canary@127.0.0.1:9000"})
    assert "canary" not in str(raised.value)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--table gold.nothing --start 2013-01-01 --end 2013-01-02", "--table: found 'gold.nothing', expected one of bronze."),
        ("--table silver.transactions --start 2013-01-01 --end 2013-01-02 --release 9", "nothing was released"),
        ("--postgres public.accounts", "no Postgres: LEDGER_POSTGRES_URL is not set"),
    ],
)
def test_what_cannot_be_exported_is_one_line_and_exit_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, words: str, told: str
) -> None:
    monkeypatch.setenv("LEDGER_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("LEDGER_POSTGRES_URL", raising=False)
    monkeypatch.setattr("spark_jobs.runtime.session.start_session", lambda *_, **__: pytest.fail("a session was started"))
    assert run.main(["export", "--to", str(tmp_path / "x"), *words.split()]) == 2
    assert [record.getMessage()[: len(told)] for record in caplog.records if record.levelname == "ERROR"] == [told]


@pytest.mark.parametrize("words", ["--table a.b --postgres a.b --to /x", "--to /x", "--table a.b", "--table a.b --to /x --file-mb 0"])
def test_command_lines_that_are_refused(words: str) -> None:
    with pytest.raises(SystemExit) as raised:
        run.parse_arguments(["export", *words.split()])
    assert raised.value.code == 2
