"""What the live queries hold: told from their checkpoints while they run, and no more of it after a day than after another."""

import json
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_jobs.lake import sinks, tables
from spark_jobs.live import checkpoints, state, state_job
from spark_jobs.live.products.lookups import LOOKUPS
from spark_jobs.live.queries import BY_NAME, QUERIES
from spark_jobs.live.running import build
from spark_jobs.live.state import State
from spark_jobs.runtime.errors import LedgerError, SettingsError
from spark_jobs.runtime.settings import Settings, read_settings
from tests.support.frames import at
from tests.support.live_lake import live_session

# The operators that forget what the watermark has passed. Another one must be given a time-to-live, and a test of it, before its name may
# be added here, or hold a fixed amount for each key of a bounded set.
WATERMARKED = {"stateStoreSave", "sessionWindowStateStoreSaveExec", "symmetricHashJoin"}
# An entry for each account or customer (the unit tests of their rules say: of how many rows), or for the bank.
BOUNDED = {
    "alerts": {"transformWithStateInPandasExec"},
    "enriched_transactions": {"transformWithStateInPandasExec"},
    "debit_share": {"stateStoreSave", "transformWithStateInPandasExec"},
}
STATEFUL = [query for query in QUERIES if query not in LOOKUPS and query.name != "district_transactions"]
STEP, DAYS = 12, 3  # hours that a batch takes
HOURS = (6, 7, 8, 14)  # of each day, at which each customer has a debit, and a credit 5 s later


@dataclass(frozen=True)
class Running:
    """The live queries behind three simulated days of the same rows. They go on running; `held`: their rows of state after each batch."""

    spark: SparkSession
    settings: Settings
    queries: list[StreamingQuery]
    held: dict[str, list[int]]

    def session(self) -> SparkSession:
        """A look at the state is a look while the queries run."""
        assert all(query.isActive for query in self.queries)
        return self.spark


@pytest.fixture(scope="module")
def running(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    settings = read_settings({"LEDGER_HOME": str(tmp_path_factory.mktemp("state"))})
    tables.ensure_tables(settings, (tables.BRONZE_CUSTOMERS, *tables.LIVE))
    take(settings, 0, 0)  # before the queries begin: one batch a commit
    queries: list[StreamingQuery] = []
    with live_session(spark):
        try:
            with sinks.configured(spark, {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}):
                for query in STATEFUL:
                    frame = build(spark, settings, query)
                    folder = checkpoints.open_checkpoint(settings, query, frame).folder
                    writer = frame.writeStream.format("noop").queryName(query.name).option("checkpointLocation", str(folder))
                    queries.append(writer.trigger(processingTime="0 seconds").start())
            held: dict[str, list[int]] = {query.name: [] for query in STATEFUL}
            for batch, hour in enumerate(range(0, 24 * DAYS, STEP)):
                if batch:
                    take(settings, batch, hour)
                for stream in queries:
                    stream.processAllAvailable()
                    progress = stream.lastProgress
                    assert progress is not None
                    held[stream.name].append(sum(operator.numRowsTotal for operator in progress.stateOperators))
            yield Running(spark, settings, queries, held)
        finally:
            for stream in queries:
                stream.stop()


def take(settings: Settings, batch: int, start: int) -> None:
    """The rows of four customers in the 12 hours from an hour of 2024 on, as the intake would write them."""
    rows = []
    for hour in (hour for hour in range(start, start + STEP) if hour % 24 in HOURS):
        for number, kind in [(number, kind) for number in range(4) for kind in ("Debit", "Credit")]:
            moment = at("2024-01-01") + timedelta(hours=hour, minutes=number, seconds=5 * (kind == "Credit"))
            ids = {"transaction_id": f"{kind[0]}{hour}-{number}", "account_id": "A00000001", "customer_id": f"C0000000{number}"}
            money = {"amount": Decimal("1.25"), "balance": Decimal(1)}
            where = {"_topic": "t", "_partition": 0, "_offset": hour, "_batch": batch}
            rows.append(ids | money | where | {"event_at": moment, "event_on": moment.date(), "type": kind, "operation": None})
    table = tables.LIVE_TRANSACTIONS
    write_deltalake(str(table.path(settings)), pa.Table.from_pylist(rows, pa.schema(table.delta_schema().to_arrow())), mode="append")


def test_a_fixed_set_of_keys_holds_as_much_on_every_day(running: Running) -> None:
    """From the second day on, what is held at an hour of the day is what was held at that hour of the day before."""
    for name, curve in running.held.items():
        assert len(curve) == 24 // STEP * DAYS, name
        counted = name == "debit_share"  # the counts before are held from the batch on that closes the first day
        assert curve[4:] == [curve[2] + counted, curve[3]], name
        assert min(curve) > 0, name


def test_every_operator_forgets_by_the_watermark_and_keeps_changelogs(running: Running) -> None:
    for query in STATEFUL:
        held = state.read_newest(running.session, running.settings, query, lambda _, found: found)
        assert held is not None, query.name
        assert held.stores, query.name
        assert {store.operator for store in held.stores} <= BOUNDED.get(query.name, WATERMARKED), query.name
        keys = [key for store in held.stores for key in state.keys(state.entries(running.spark, held, store))]
        assert [key for key in keys if key.startswith("field")] == [], f"{query.name}: keys without a name of gold's"
        assert list(held.generation.folder.glob("state/0/0/**/*.changelog")), f"{query.name}: no changelog of RocksDB"


def test_the_list_has_every_query_with_its_operators_stores_keys_and_sizes(running: Running, capsys: pytest.CaptureFixture[str]) -> None:
    before = files(running.settings.checkpoints)
    state_job.list_all(running.settings, running.session)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    heads = [" ".join(line) for line in lines if line[0].endswith(":")]
    assert heads[:4] == [f"{name}: generation 1, batch 5, watermark 2024-01-03T08:02:55Z" for name in [*BY_NAME][:4]]
    # Its two sources may see a commit in two batches.
    assert re.fullmatch(r"debit_credit_pairs: generation 1, batch \d+, watermark 2024-01-03T08:02:55Z", heads[4])
    assert heads[5] == "alerts: generation 1, batch 5, watermark 2024-01-03T08:02:55Z"
    assert len(heads) == len(BY_NAME)
    window = "window_start timestamp, window_end timestamp, type string"
    assert [(*line[1:5], " ".join(line[6:])) for line in lines if line[0] == "0"] == [
        ("stateStoreSave", "default", "1", "2", window),
        ("stateStoreSave", "default", "1", "30", window),
        ("stateStoreSave", "default", "1", "16", window),
        ("sessionWindowStateStoreSaveExec", "default", "1", "4", "customer_id string, session_start timestamp"),
        ("symmetricHashJoin", "left-keyToNumValues", "1", "4", "customer_id string"),
        ("symmetricHashJoin", "left-keyWithIndexToValue", "1", "9", "customer_id string, index bigint"),
        ("symmetricHashJoin", "right-keyToNumValues", "1", "4", "customer_id string"),
        ("symmetricHashJoin", "right-keyWithIndexToValue", "1", "5", "customer_id string, index bigint"),
        ("transformWithStateInPandasExec", "account", "1", "1", "account_id string"),
        ("transformWithStateInPandasExec", "counts", "1", "1", "scope string"),
        ("transformWithStateInPandasExec", "customer", "1", "4", "customer_id string"),
    ]
    sizes = [int(line[5]) for line in lines if line[0] == "0"]
    stored = [sum(size for path, size in before.items() if f"/{query.name}/1/state/0/0/" in path) for query in STATEFUL]
    assert [*sizes[:4], sum(sizes[4:8]), *sizes[8:]] == stored
    assert files(running.settings.checkpoints) == before


def test_what_is_held_of_a_key_is_shown(running: Running, capsys: pytest.CaptureFixture[str]) -> None:
    def show(name: str, where: str) -> list[dict[str, Any]]:
        state_job.show(running.settings, running.session, name, where)
        return [json.loads(line, parse_float=Decimal) for line in capsys.readouterr().out.splitlines()]

    (session,) = show("customer_sessions", "customer_id = 'C00000002'")
    assert (session["operator"], session["store"]) == ("sessionWindowStateStoreSaveExec", "default")
    assert session["key"] == {"customer_id": "C00000002", "session_start": "2024-01-03T06:02:00.000Z"}
    assert session["value"]["session_window"]["end"] == "2024-01-04T02:02:04.999Z"  # Spark joins sessions that touch: a millisecond less
    assert (session["value"]["count"], session["value"]["sum"]) == (8, Decimal("10.00"))
    (day,) = show("daily_totals", "window_start >= '2024-01-03' and type = 'Debit'")
    assert (day["key"]["window_end"], day["value"]["count"]) == ("2024-01-04T00:00:00.000Z", 16)
    pairs = show("debit_credit_pairs", "customer_id = 'C00000000'")
    assert {line["value"]["debit_id"] for line in pairs if line["store"] == "left-keyWithIndexToValue"} == {"D56-0", "D62-0"}


def test_a_key_that_is_not_held_any_more_is_no_error(
    running: Running, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        state_job.show(running.settings, running.session, "daily_totals", "window_start = '2024-01-02'")  # closed by the watermark
    assert capsys.readouterr().out == ""
    assert caplog.messages[-1] == "daily_totals holds nothing of such a key"


def test_of_many_rows_the_first_are_shown(
    running: Running, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_job, "MOST_ROWS", 3)
    with caplog.at_level(logging.INFO):
        state_job.show(running.settings, running.session, "customer_sessions", "true")
    assert len(capsys.readouterr().out.splitlines()) == 3
    assert caplog.messages[-1] == "more than 3 rows match: ask for fewer, or take all by run state export"


@pytest.mark.parametrize(
    ("name", "where", "said"),
    [
        ("sessions", "true", "--query: found 'sessions', expected one of daily_totals, sliding_totals"),
        ("daily_totals", "customer = 'C00000002'", "expected a condition on the key columns window_start timestamp, window_end timestamp"),
        ("daily_totals", "type", "is not a boolean: expected a condition on the key columns"),
        ("daily_totals", "true; drop table t", "--where: found a semicolon"),
        ("customer_sessions", "cast(customer_id as int) = 1", "not shown: it may quote a value"),
    ],
)
def test_what_names_no_state_is_refused(running: Running, name: str, where: str, said: str) -> None:
    with pytest.raises(SettingsError) as refused:
        state_job.show(running.settings, running.session, name, where)
    assert said in str(refused.value)
    assert "C0000000" not in str(refused.value)


def test_an_export_has_every_row_with_its_batch_and_watermark(running: Running, tmp_path: Path) -> None:
    to = tmp_path / "new" / "state"
    state_job.export(running.settings, running.session, "debit_credit_pairs", to)
    stores = ["left-keyToNumValues", "left-keyWithIndexToValue", "right-keyToNumValues", "right-keyWithIndexToValue"]
    assert sorted(str(folder.relative_to(to)) for folder in to.glob("*/*")) == [f"0/{name}" for name in stores]
    held = pq.read_table(to / "0" / "right-keyWithIndexToValue")
    assert held.schema.field("watermark_at").type == pa.timestamp("us", "UTC")
    found = {(row["customer_id"], row["value"]["credit_id"], row["value"]["credit_at"]) for row in held.to_pylist()}
    last = {(f"C0000000{number}", f"C62-{number}", at(f"2024-01-03 14:0{number}:05")) for number in range(4)}
    assert found == last | {("C00000003", "C56-3", at("2024-01-03 08:03:05"))}
    newest = state.read_newest(running.session, running.settings, BY_NAME["debit_credit_pairs"], lambda _, found: found.batch)
    assert {(row["batch"], row["watermark_at"]) for row in held.to_pylist()} == {(newest, at("2024-01-03 08:02:55"))}
    with pytest.raises(SettingsError, match="which is not empty, expected an empty or a new folder"):
        state_job.export(running.settings, running.session, "debit_credit_pairs", to)


def test_a_batch_that_was_removed_meanwhile_is_looked_for_once_more(running: Running) -> None:
    looked: list[int] = []

    def look(spark: SparkSession, found: State) -> int:
        looked.append(found.batch)
        there = found if len(looked) > 1 else replace(found, batch=77)  # a batch whose files are not there
        return state.entries(spark, there, there.stores[0]).count()

    assert state.read_newest(running.session, running.settings, BY_NAME["daily_totals"], look) == 2
    assert looked == [5, 5]


def test_state_that_cannot_be_read_is_told(running: Running) -> None:
    def look(spark: SparkSession, found: State) -> int:
        return state.entries(spark, replace(found, batch=77), found.stores[0]).count()

    with pytest.raises(LedgerError, match=r"the state of live daily_totals cannot be read: .* expected the files of its last batches"):
        state.read_newest(running.session, running.settings, BY_NAME["daily_totals"], look)


def test_a_query_that_never_ran_is_told_without_a_session(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    def session() -> SparkSession:
        raise AssertionError("asked for a session")

    settings = read_settings({"LEDGER_HOME": str(tmp_path)})
    state_job.list_all(settings, session)
    assert capsys.readouterr().out.splitlines() == [f"{name}: no batch has ended yet: there is no state" for name in BY_NAME]
    with caplog.at_level(logging.INFO):
        state_job.show(settings, session, "daily_totals", "true")
        state_job.export(settings, session, "daily_totals", tmp_path / "out")
    assert caplog.messages == ["daily_totals has no state: no batch of it has ended yet"] * 2
    assert list(tmp_path.iterdir()) == []


def files(folder: Path) -> dict[str, int]:
    """The files below a folder, and their sizes."""
    return {str(file): file.stat().st_size for file in folder.rglob("*") if file.is_file()}
