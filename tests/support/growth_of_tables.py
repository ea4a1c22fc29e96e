"""Checks of the lines about tables, and of what follows from their rows: see growth.py."""

import json
import os
import shutil
from collections.abc import Iterator

from deltalake import DeltaTable

from spark_jobs import control
from spark_jobs.control import districts
from spark_jobs.lake import log_files, tables
from spark_jobs.lake.tables import AUDITS, BATCHES, DISTRICTS, QUALITY_RESULTS, RELEASES, Table
from spark_jobs.releases import archive, catalogues
from spark_jobs.runtime.settings import Settings
from tests.support.aging import TIMES, age
from tests.support.growth import DAYS, DAYS_AGO, maintain, of_line, write_old
from tests.support.quality_rows import batch, bronze, release, verdict, write

KEPT_DAYS = 8  # LEDGER_RELEASE_DAYS and a day
ARCHIVED = 5  # a release


@of_line("rows of bronze")
def rows(settings: Settings) -> Iterator[None]:
    write(settings, tables.BRONZE_TRANSACTIONS, [bronze(number, number) for number in range(DAYS)])
    age(settings, tables.BRONZE_TRANSACTIONS, DAYS)
    yield
    assert tables.BRONZE_TRANSACTIONS.open(settings).to_pyarrow_table().num_rows == DAYS  # not one is removed


@of_line("files and commits of the tables")
def files(settings: Settings) -> Iterator[None]:
    """A table that is replaced each day, as an operator replaces the districts."""
    for number, day in enumerate(DAYS_AGO):
        districts.replace(settings, [{"district_id": 1, "name": f"{day}", "region": None}])
        if number % 10 == 9:
            spread(settings, DISTRICTS)
            maintain(settings, DISTRICTS)
    log = DISTRICTS.path(settings) / "_delta_log"
    yield
    assert 30 < len(list(log.glob("*.json"))) <= 30 + 20  # the days that commits of control tables stay, down to a checkpoint
    assert 7 < len(list(DISTRICTS.path(settings).glob("*.parquet"))) <= 10  # the days that files stay which are not in the table any more
    assert [row["name"] for row in control.read(settings, DISTRICTS).to_pylist()] == [f"{DAYS_AGO[-1]}"]


def spread(settings: Settings, table: Table) -> None:
    """Make the commits of a table, the files that they added and the newest checkpoint of them look a day apart."""
    path = table.path(settings)
    for commit in (path / "_delta_log").glob("*.json"):
        day = DAYS_AGO[max(int(commit.stem) - 1, 0)]  # the first one made the table
        text = TIMES.sub(rf'"\1":{int(day.timestamp() * 1000)}', commit.read_text())
        write_old(commit, day, text)
        for file in [path / json.loads(line)["add"]["path"] for line in text.splitlines() if line.startswith('{"add"')]:
            if file.exists():
                os.utime(file, (day.timestamp(), day.timestamp()))
    version, files = max(log_files.read_log(path).checkpoints.items())
    log_files.delete([*files, path / "_delta_log" / "_last_checkpoint"])
    DeltaTable(str(path), version=version).create_checkpoint()


@of_line("verdicts (control.quality_results)")
def verdicts(settings: Settings) -> Iterator[None]:
    found = []
    for number, day in enumerate(DAYS_AGO):
        place = f"silver/transactions/run {number}/{day:%Y%m%dT%H%M%S.%fZ}/profiles"
        page = write_old(settings.quality / f"data_docs/validations/{place}.html", day)
        write_old(settings.quality / f"gx/validations/{place}.json", day)
        found.append(verdict(number, "silver.transactions") | {"_judged_at": day, "report": page.as_uri()})
    control.append(settings, QUALITY_RESULTS, found)
    yield
    assert control.read(settings, QUALITY_RESULTS).num_rows == KEPT_DAYS
    for folder in (settings.quality / "data_docs/validations", settings.quality / "gx/validations"):
        assert len([file for file in folder.rglob("*") if file.is_file()]) == KEPT_DAYS


@of_line("control.releases")
def of_releases(settings: Settings) -> Iterator[None]:
    named = [release(number, 0, "bronze.transactions") | {"released_at": day} for number, day in enumerate(DAYS_AGO, start=1)]
    control.append(settings, RELEASES, named)
    yield
    numbers = set(range(DAYS - KEPT_DAYS + 1, DAYS + 1))
    assert set(control.read(settings, RELEASES)["release_id"].to_pylist()) == numbers | {ARCHIVED}


@of_line("control.audits")
def of_audits(settings: Settings) -> Iterator[None]:
    row = {"table": "silver.transactions", "version": 1, "rows": 1, "missing": 0, "unexpected": 0}
    control.append(settings, AUDITS, [row | {"run_id": f"{day}", "audited_at": day} for day in DAYS_AGO])
    yield
    assert control.read(settings, AUDITS).num_rows == KEPT_DAYS


@of_line("control.batches")
def of_batches(settings: Settings) -> Iterator[None]:
    """Their rows stay; their files become few."""
    for number in range(30):  # more make no difference, and take their time
        control.append(settings, BATCHES, [batch(number, "transactions") | {"finished_at": day} for day in DAYS_AGO[number::30]])
    yield
    assert control.read(settings, BATCHES).num_rows == DAYS
    assert len(BATCHES.open(settings).file_uris()) <= 20


@of_line("archived releases")
def archived(settings: Settings) -> Iterator[None]:
    """They stay until an operator removes their folder; the release then expires as any other."""
    folder = archive.folder(settings, ARCHIVED)
    write_old(folder / "bronze/transactions/part.parquet", DAYS_AGO[0])
    yield
    assert folder.is_dir()
    shutil.rmtree(folder)
    maintain(settings, RELEASES)
    assert ARCHIVED not in control.read(settings, RELEASES)["release_id"].to_pylist()


@of_line("SQL catalogues")
def of_catalogues(settings: Settings) -> Iterator[None]:
    for number, day in enumerate(DAYS_AGO, start=1):
        write_old(catalogues.file_of(settings, number), day)
    yield
    found = {file.name for file in catalogues.folder(settings).glob("release-*.duckdb")}
    assert found <= {f"release-{number}.duckdb" for number in (ARCHIVED, *range(DAYS - KEPT_DAYS + 1, DAYS + 1))}
