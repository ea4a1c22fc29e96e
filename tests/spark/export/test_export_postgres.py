"""A table of Postgres as Parquet: exact numbers, moments in UTC, all of one moment however many connections read."""

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import psycopg2
import pytest
from pyspark.sql import SparkSession

from include.stack import postgres
from include.stack.shutdown import stop_parts
from spark_jobs import run
from spark_jobs.export import job
from spark_jobs.runtime import kill_points, session
from spark_jobs.runtime.errors import LedgerError, SettingsError
from spark_jobs.runtime.settings import Settings, endpoints_file, read_settings
from tests.support.targets import Folder, days_of, rows_of, told

pytestmark = pytest.mark.spark

NAME = "bank.payments"
DIGITS = Decimal("12345678901234567890123456.7890123456")
TABLES = """
create schema bank;
create table bank.payments (
    id bigint primary key, amount numeric(18,2), precise numeric, "Note" text, made_at timestamptz, booked timestamp, due date,
    tags text[], is_paid boolean, ratio double precision, raw bytea, who uuid);
insert into bank.payments values
    (1, 9007199254740993.01, 12345678901234567890123456.7890123456, 'Zoë', '2024-03-01 01:30:00+02', '2024-03-01 12:00', '2024-03-01',
     '{a,b}', true, 0.1, '\\x00ff', '00000000-0000-0000-0000-000000000001'),
    (2, -0.01, 1, null, '2024-03-01 00:00:00.000001+00', null, null, null, null, null, null, null),
    (3, 0, 0.5, '', '2024-03-01 23:59:59.999999+00', null, null, null, null, null, null, null),
    (4, 1, null, null, '2024-03-02 00:00:00+00', null, null, null, null, null, null, null);
create table bank.many as select n as id, timestamptz '2024-01-01 00:00+00' + n * interval '1 minute' as at from generate_series(1, 5000) n;
create table bank.odd (id int, amount numeric(10,2), n numeric, at timestamptz);
insert into bank.odd values (1, 1, 'NaN', now()), (2, 1, 1, null);
create table bank.long (n numeric);
insert into bank.long values (1e30), (0.0000000001);
"""


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """A home whose Postgres is up, as the stack starts it, and holds a few tables; its password is in a file beside it."""
    home = tmp_path_factory.mktemp("payments")
    try:
        if started := postgres.launch(home):
            postgres.wait(home, started)
        url = postgres.own_url(home, with_password=True) or ""
        connection = psycopg2.connect(url)
        with connection, connection.cursor() as cursor:
            cursor.execute(TABLES)
        connection.close()
        endpoints_file(home).write_text(json.dumps({"postgres_url": postgres.own_url(home)}))
        yield read_settings({"LEDGER_HOME": str(home)})
    finally:
        stop_parts(home, None, lambda _: None)


@pytest.fixture(autouse=True)
def _one_session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "start_session", lambda *_, **__: spark)


def export(settings: Settings, target: Path, words: str) -> Folder:
    run.JOBS["export"](settings, run.parse_arguments(["export", "--to", str(target), *words.split()]))
    return Folder(target)


def ids(place: Folder, name: str = NAME) -> dict[str, list[int]]:
    return {day: [row["id"] for row in rows] for day, rows in rows_of(days_of(place, name)).items()}


def test_every_type_is_exact_in_the_folder_of_today(settings: Settings, tmp_path: Path) -> None:
    place = export(settings, tmp_path, f"--postgres {NAME}")
    ((day, rows),) = rows_of(days_of(place, NAME)).items()
    assert date.fromisoformat(day) in (datetime.now(UTC).date(), datetime.now(UTC).date() - timedelta(days=1))
    found = {row["id"]: row for row in rows}
    assert found[1] == {
        "id": 1,
        "amount": Decimal("9007199254740993.01"),
        "precise": DIGITS,
        "Note": "Zoë",
        "made_at": datetime(2024, 2, 29, 23, 30, tzinfo=UTC),
        "booked": datetime(2024, 3, 1, 12, tzinfo=UTC),
        "due": date(2024, 3, 1),
        "tags": "{a,b}",
        "is_paid": True,
        "ratio": 0.1,
        "raw": b"\x00\xff",
        "who": "00000000-0000-0000-0000-000000000001",
    }
    assert [found[number]["precise"] for number in (2, 3, 4)] == [1, Decimal("0.5"), None]
    assert "password" not in str(told(place, NAME))


def test_in_folders_of_a_time_column_and_only_of_a_range(settings: Settings, tmp_path: Path) -> None:
    place = export(settings, tmp_path, f"--postgres {NAME} --date-column made_at")
    assert ids(place) == {"2024-02-29": [1], "2024-03-01": [2, 3], "2024-03-02": [4]}
    place = export(settings, tmp_path / "range", f"--postgres {NAME} --date-column made_at --start 2024-03-01 --end 2024-03-02")
    assert ids(place) == {"2024-03-01": [2, 3]}


def test_many_connections_see_one_moment(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that come and change after the export has begun are in none of its parts."""

    def disturb(point: str) -> None:
        if point == "before staging an export":
            connection = psycopg2.connect(postgres.own_url(settings.home, with_password=True) or "")
            with connection, connection.cursor() as cursor:
                cursor.execute("update bank.many set id = id + 10000 where id % 7 = 0; insert into bank.many values (9999, now())")
            connection.close()
        kill_points.kill_point(point)

    monkeypatch.setattr(job, "kill_point", disturb)
    place = export(settings, tmp_path, "--postgres bank.many --partition-column id --date-column at")
    assert sorted(number for numbers in ids(place, "bank.many").values() for number in numbers) == list(range(1, 5001))


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        ("bank.nothing", SettingsError, "--postgres: found no table bank.nothing"),
        (f"{NAME} --date-column nothing", SettingsError, "--date-column: found 'nothing', expected one of the table's columns: id, amount"),
        (f"{NAME} --date-column amount", SettingsError, "--date-column: found amount of type numeric, expected date, timestamp"),
        (f"{NAME} --partition-column nothing", SettingsError, "--partition-column: found 'nothing'"),
        ("bank.odd", LedgerError, "bank.odd, column n: found 1 values that are no numbers, expected numbers of at most 38 digits"),
        ("bank.odd --date-column at", LedgerError, "bank.odd: found 1 rows without a finite at, expected one in each"),
        ("bank.long", LedgerError, "column n: found 31 digits before the point and 10 after it"),
    ],
)
def test_what_cannot_be_exported(settings: Settings, tmp_path: Path, words: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as raised:
        export(settings, tmp_path, f"--postgres {words}")
    assert message in str(raised.value)
    assert not list(tmp_path.rglob("*/*"))


def test_a_wrong_password_is_one_line_without_it(settings: Settings, tmp_path: Path) -> None:
    url = str(postgres.own_url(settings.home, with_password=True))
    changes = {"LEDGER_HOME": str(settings.home), "LEDGER_POSTGRES_URL": url.replace("ledger:", "ledger:canary")}
    with pytest.raises(LedgerError, match=r"Postgres does not answer \(.*password authentication failed") as raised:
        export(read_settings(changes), tmp_path, f"--postgres {NAME}")
    assert "canary" not in str(raised.value)
    assert "\n" not in str(raised.value)
