"""90 days of runs, with maintenance every day: what runs leave behind is as large on day 90 as it was on day 30."""

import os
import re
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import unquote

import pytest
from deltalake import DeltaTable

from include.airflow_cleanup import oldest, remove_logs
from spark_jobs import control
from spark_jobs.control.verdicts import verdicts_that_matter
from spark_jobs.lake import tables
from spark_jobs.lake.tables import AUDITS, BATCHES, BY_NAME, DECISIONS, QUALITY_RESULTS, RELEASES
from spark_jobs.lake.txn import Txn
from spark_jobs.maintenance import expiry, job as maintenance, table_maintenance
from spark_jobs.releases import archive, releases, retention
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.settings import Settings, read_settings
from tests.support.aging import TIMES

DAYS, RUNS_A_DAY = 90, 1
MAINTENANCE = 5  # days: every day would take a minute here, and remove more
BEGUN = datetime.now(UTC).replace(microsecond=0) - timedelta(days=DAYS)
EARLIER = 45  # days, after which as much is kept as ever will be: commits of control tables stay for 30
GROWING = (QUALITY_RESULTS, RELEASES, AUDITS, BATCHES)
PAGE = b"x" * 4096
EVER_KEPT, ROLLED_BACK_TO = 5, 7


@dataclass
class Clock:
    """The time that maintenance goes by."""

    now: datetime = BEGUN
    real: float = 0.0

    def stamp(self, *folders: Path) -> None:
        """What was written since the last time was written now."""
        seconds, since = self.now.timestamp(), self.real
        for file in (file for folder in folders for file in folder.rglob("*") if file.is_file() and file.stat().st_mtime >= since):
            if file.suffix == ".json" and file.parent.name == "_delta_log":
                text = TIMES.sub(lambda found: f'"{found[1]}":{int(seconds * 1000)}', file.read_text())
                (file.parent / f".{file.name}.crc").unlink(missing_ok=True)
                file.write_text(text)
            os.utime(file, (seconds, seconds))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(table_maintenance, "utc_now", lambda: clock.now)
    return clock


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return new_home(tmp_path / "home")


def judged(settings: Settings, run: int, now: datetime) -> None:
    """A run: its verdicts with their reports, a release of the judged versions, what its jobs recorded, the logs of its tasks."""
    run_id, verdicts = f"scheduled__{run}", []
    for name, table in BY_NAME.items():
        place = f"{name.replace('.', '/')}/{run_id}/{now:%Y%m%dT%H%M%S.%fZ}/profiles-{name}"
        for file in (settings.quality / f"data_docs/validations/{place}.html", settings.quality / f"gx/validations/{place}.json"):
            file.parent.mkdir(parents=True)
            file.write_bytes(PAGE)
        row = {"run_id": run_id, "layer": table.layer, "table": name, "version": run, "suite": name, "evaluated": 9, "failed": 0}
        row |= {"success": run != 3, "_judged_at": now, "_first_batch": run, "_last_batch": run}
        verdicts.append(row | {"report": (settings.quality / f"data_docs/validations/{place}.html").as_uri()})
    control.append(settings, QUALITY_RESULTS, verdicts)
    named = [{"release_id": run, "released_at": now, "table": name, "version": run, "rows": 1, "last_batch": run} for name in BY_NAME]
    control.append(settings, RELEASES, named, once=Txn("release", run))
    done = {"run_id": run_id, "first_batch": run, "last_batch": run, "input": 1, "output": 1, "finished_at": now, "rules_version": "1"}
    control.append(settings, BATCHES, [done | {"job": "silver", "table": f"silver.{topic}"} for topic in ("transactions", "accounts")])
    log = settings.home / f"logs/dag_id=medallion/run_id={run_id}/task_id=silver/attempt=1.log"
    log.parent.mkdir(parents=True)
    log.write_bytes(PAGE)


def audited(settings: Settings, day: int, now: datetime) -> None:
    rows = [{"run_id": f"audit {day}", "table": name, "version": 1, "rows": 1, "missing": 0, "unexpected": 0} for name in BY_NAME]
    control.append(settings, AUDITS, [row | {"audited_at": now} for row in rows])


def sizes(settings: Settings) -> dict[str, tuple[int, int]]:
    """Files and bytes of everything that runs leave behind."""
    folders = {table.name: table.path(settings) for table in GROWING}
    folders |= {"data docs": settings.quality / "data_docs", "gx": settings.quality / "gx", "task logs": settings.home / "logs"}
    found = {name: [file.stat().st_size for file in folder.rglob("*") if file.is_file()] for name, folder in folders.items()}
    empty = [folder for folder in (*settings.quality.rglob("*"), *(settings.home / "logs").rglob("*")) if folder.is_dir()]
    return {name: (len(each), sum(each)) for name, each in found.items()} | {"folders": (len(empty), 0)}


def live(settings: Settings, clock: Clock, days: int) -> dict[str, tuple[int, int]]:
    """Live through so many days that end now (delta-rs goes by the machine's clock), and say what there is then."""
    clock.now, clock.real = BEGUN + timedelta(days=DAYS - days), 0.0
    run = 0
    for day in range(1, days + 1):
        for _ in range(RUNS_A_DAY):
            run, clock.now = run + 1, clock.now + timedelta(days=1) / RUNS_A_DAY
            judged(settings, run, clock.now)
        audited(settings, day, clock.now)
        if run == EVER_KEPT + 3:
            archive.folder(settings, EVER_KEPT).mkdir(parents=True)
            decided = {
                "decided_at": clock.now,
                "choice": "roll back",
                "release_id": ROLLED_BACK_TO,
                "generation": 2,
                "run_id": "scheduled__3",
            }
            control.append(settings, DECISIONS, [decided | {"layer": "silver", "who": "Ada", "why": "so"}])
            control.append(settings, DECISIONS, [], once=Txn(control.ROLLED_BACK, 2))  # and it was carried out
        if day % MAINTENANCE:
            continue
        clock.stamp(settings.warehouse, settings.quality, settings.home / "logs")
        clock.real = time.time()
        maintenance.run(settings, (*GROWING, DECISIONS), lambda: pytest.fail("a session was started"), "tidy", 0)
        remove_logs(settings.home / "logs", oldest(settings, clock.now))
        clock.stamp(settings.warehouse)
        clock.real = time.time()
    return sizes(settings)


def new_home(folder: Path) -> Settings:
    settings = read_settings({"LEDGER_HOME": str(folder)})
    tables.ensure_tables(settings, (*GROWING, DECISIONS))
    return settings


def test_ninety_days(settings: Settings, clock: Clock, tmp_path: Path) -> None:
    earlier = live(new_home(tmp_path / "earlier"), clock, EARLIER)
    found = live(settings, clock, DAYS)
    assert set(earlier) == set(found)
    for name, (files, size) in found.items():
        print(f"{name}: day {EARLIER} {earlier[name]}, day {DAYS} {(files, size)} (files, bytes)")
    for name, (files, size) in found.items():
        assert files <= 1.3 * earlier[name][0] + 20, name  # the log goes up to a checkpoint, of which there is one in 20 commits
        if name != BATCHES.name:
            assert size <= 1.3 * earlier[name][1] + 50_000, name

    last, days = DAYS * RUNS_A_DAY, settings.release_days + 1
    young = set(range(last - days * RUNS_A_DAY, last + 1))
    assert {row["release_id"] for row in control.read(settings, RELEASES).to_pylist()} == young | {EVER_KEPT, ROLLED_BACK_TO}
    verdicts = control.read(settings, QUALITY_RESULTS).to_pylist()
    assert {row["version"] for row in verdicts} == young | {EVER_KEPT, 3}  # 3: the newest that did not pass
    named = {row["report"] for row in verdicts}
    pages = {file.as_uri() for file in (settings.quality / "data_docs").rglob("*.html")}
    assert named <= pages
    assert len(pages - named) <= MAINTENANCE * len(BY_NAME)  # the clock of this test is as coarse as that
    assert control.read(settings, BATCHES).num_rows == 2 * last  # all that was done stays on record
    assert {name for name, rows in verdicts_that_matter(settings).items() if rows[-1].passed} == set(BY_NAME)

    # Numbers of releases rise, an expired one is named, one that a person rolled back to is found.
    assert releases.newest_release(settings).release_id == last
    assert releases.find_release(settings, ROLLED_BACK_TO).released_at
    with pytest.raises(LedgerError, match="release 8 has expired and is not on record any more: open the newest one, 90"):
        retention.find_offered(settings, 8, clock.now)
    with pytest.raises(LedgerError, match="there is no release 91"):
        releases.find_release(settings, last + 1)
    assert DeltaTable(str(RELEASES.path(settings))).transaction_version("release") == last


def test_what_somebody_still_needs_stays(settings: Settings, clock: Clock) -> None:
    """Nothing new for longer than releases are offered: the newest release, its verdicts and reports are what they were."""
    judged(settings, 1, clock.now)
    judged(settings, 2, clock.now + timedelta(hours=1))
    clock.stamp(settings.quality)
    clock.now += timedelta(days=60)
    assert expiry.remove_rows(settings, QUALITY_RESULTS, clock.now) == len(BY_NAME)
    assert expiry.remove_rows(settings, RELEASES, clock.now) == len(BY_NAME)
    assert expiry.remove_expired_reports(settings, clock.now) == 2 * len(BY_NAME)
    assert (releases.newest_release(settings).release_id, set(releases.newest_release(settings).versions)) == (2, set(BY_NAME))
    assert len(list((settings.quality / "data_docs").rglob("*.html"))) == len(BY_NAME)
    assert expiry.remove_rows(settings, QUALITY_RESULTS, clock.now) == 0


def test_the_list_of_reports_has_those_that_are_left(settings: Settings, clock: Clock) -> None:
    judged(settings, 1, clock.now)
    judged(settings, 2, clock.now + timedelta(days=50))
    for number, day in ((1, clock.now), (2, clock.now + timedelta(days=50))):
        for file in settings.quality.rglob(f"scheduled__{number}/*/*"):
            os.utime(file, (day.timestamp(), day.timestamp()))
    index = settings.quality / "data_docs" / "index.html"
    index.write_text("of before")
    control.append(settings, DECISIONS, [])
    expiry.remove_rows(settings, QUALITY_RESULTS, clock.now + timedelta(days=60))
    assert expiry.remove_expired_reports(settings, clock.now + timedelta(days=60)) > 0
    text = index.read_text()
    linked = {index.parent / unquote(address) for address in re.findall('href="([^"]+)"', text)}
    assert linked == {file for file in index.parent.rglob("*.html") if file != index}
    assert "scheduled__2" in text
    assert "scheduled__1<" not in text


def test_after_a_day_one_report_an_hour_stays_and_those_that_failed(settings: Settings, clock: Clock) -> None:
    """A run every ten minutes for three hours, of which the third one is closed and the fifth one warns; the ninth one is archived."""
    first = clock.now.replace(minute=0, second=0, microsecond=0)
    for run in range(1, 19):
        judged(settings, run, first + (run - 1) * timedelta(minutes=10))
    path = str(QUALITY_RESULTS.path(settings))
    DeltaTable(path).update({"failed": "1"}, predicate="run_id = 'scheduled__3' or run_id = 'scheduled__5'")
    archive.folder(settings, 9).mkdir(parents=True)
    clock.stamp(settings.quality)

    def runs() -> set[int]:
        pages = [file for kind in ("html", "json") for file in settings.quality.rglob(f"*/scheduled__*/*/*.{kind}")]
        found = {int(file.parts[-3].partition("__")[2]) for file in pages}
        assert len(pages) == 2 * len(BY_NAME) * len(found)
        return found

    assert expiry.remove_expired_reports(settings, clock.now + timedelta(hours=23)) == 0
    assert runs() == set(range(1, 19))
    assert expiry.remove_expired_reports(settings, clock.now + timedelta(hours=25)) == 2 * 12 * len(BY_NAME)
    assert runs() == {3, 5, 6, 9, 12, 18}
    assert control.read(settings, QUALITY_RESULTS).num_rows == 18 * len(BY_NAME)


def test_logs_of_a_dag_with_a_run_that_has_not_ended_stay(tmp_path: Path) -> None:
    old = BEGUN.timestamp()
    for name in ("dag_id=bronze_ingestion/run_id=r/a.log", "dag_id=medallion/run_id=r/a.log", "dag_processor/2026-01-01/dags/a.log"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("old")
        os.utime(tmp_path / name, (old, old))
    (tmp_path / "dag_processor/latest").symlink_to("2026-01-01")
    (tmp_path / "dag_id=medallion/new.log").write_text("new")
    assert remove_logs(tmp_path, datetime.now(UTC) - timedelta(days=30), ["dag_id=bronze_ingestion/run_id=r"]) == (2, 6)
    left = sorted(str(each.relative_to(tmp_path)) for each in tmp_path.rglob("*") if not each.is_dir() or each.is_symlink())
    assert left == ["dag_id=bronze_ingestion/run_id=r/a.log", "dag_id=medallion/new.log", "dag_processor/latest"]
    longer = replace(read_settings({}), release_days=60)
    assert oldest(longer, BEGUN) == BEGUN - timedelta(days=61)
