"""Re-drives: silver is afterwards what plain Python makes of bronze, the corrections and the newer rules, in order of arrival."""

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.control import corrections, redrives
from spark_jobs.lake import tables
from spark_jobs.reprocessing import redrive, redrive_plan
from spark_jobs.runtime.errors import LedgerError, SettingsError
from spark_jobs.runtime.settings import Settings
from spark_jobs.silver import job
from tests.support import kill_points, lake, oracle, redrive_cases as cases
from tests.support.redrive_cases import MINUTE, START, Judged, Log, Row

pytestmark = pytest.mark.spark

# In the order of writing.
WRITES = [
    "silver.transaction_ids",
    "silver.transactions_duplicates",
    "silver.transactions",
    "silver.transactions_late",
    "redrives of silver.transactions",
    "silver.transactions_quarantine",
]


@dataclass(frozen=True)
class Lake:
    """A warehouse, and what it was made of."""

    settings: Settings
    log: Log

    def take(self, spark: SparkSession, batches: range, chance: random.Random) -> None:
        """New batches of records come, and silver takes them in one run."""
        for batch in batches:
            cases.arrive(self.settings, self.log, batch, chance)
        lake.run_silver(spark, self.settings, f"silver-{batches[-1]}")

    def drive(
        self, spark: SparkSession, rule: str, run_id: str, lines: list[str] | None = None, chosen: redrive_plan.Selection = redrive_plan.ALL
    ) -> None:
        """Judge the rows again that break a rule, by the rules of today; `lines` are those of a file of corrections."""
        file = self.settings.home / f"{run_id}.jsonl"
        if lines:
            file.write_text("\n".join(lines) + "\n")
        given = corrections.read_file(file) if lines else []
        job.finish(spark, self.settings, run_id)
        redrive.run(spark, self.settings, redrive_plan.plan(self.settings, rule, None, file if lines else None, given, chosen), run_id)

    def breaking(self, topic: str, rule: str) -> list[Row]:
        """The records that break a rule as they are judged now; from here on they count as judged by the newer rules."""
        rows = [row for row in self.log.bronze[topic] if rule in self.log.broken(topic, row)]
        assert rows
        self.log.newer |= {oracle.place(row) for row in rows}
        return rows

    def correct(self, rows: list[Row], **fields: object) -> list[str]:
        """Lines of a corrections file that put other fields into records."""
        lines = []
        for row in rows:
            value = json.dumps({**json.loads(row["value"]), **fields})
            place = dict(zip(("topic", "partition", "offset"), oracle.place(row), strict=True))
            lines.append(json.dumps({**place, "value": value, "who": "Ada", "why": "typed wrong"}))
            self.log.values[oracle.place(row)] = value.encode()
        return lines


@pytest.fixture
def own(judged_by_older: Judged, tmp_path: Path) -> Iterator[Lake]:
    """Five batches, judged by the older rules; the newer ones are in force by now."""
    with cases.newer_rules(tmp_path / "rules"):
        yield Lake(*judged_by_older.copy(tmp_path / "home"))


def test_silver_after_re_drives_is_a_computation_from_bronze_and_corrections(spark: SparkSession, own: Lake) -> None:
    before = oracle.Transactions(own.log.judged("transactions"))
    for topic, (rule, _, _) in cases.OLDER.items():
        own.breaking(topic, rule)
        own.drive(spark, rule, f"newer-{topic}")
    after = cases.assert_silver(own.settings, own.log)
    assert after.first.keys() > before.first.keys()
    assert any(after.first[name] != row for name, row in before.first.items()), "no row became the first of an id that was there"
    assert after.late != before.late

    wrong = own.breaking("transactions", "type_known")
    lines = own.correct(wrong[0:2], type="Debit", eventTime=START + 900 * MINUTE)
    lines += own.correct(wrong[2:3], type="Debit", transactionId="T-new")
    lines += own.correct(wrong[3:6], type="Credit", transactionId="T0")
    lines += own.correct(wrong[6:8], type="Transfer", amount=7)
    own.drive(spark, "type_known", "corrected", lines)
    moved = own.breaking("customers", "district_id_whole")[::2]
    own.drive(spark, "district_id_whole", "moved", own.correct(moved, districtId="7", city="d"))
    cases.assert_silver(own.settings, own.log)
    assert_recorded(own, "corrected", wrong, lines)

    own.take(spark, range(6, 8), random.Random(4))
    own.log.newer |= {oracle.place(row) for rows in own.log.bronze.values() for row in rows if row["_batch"] > 5}
    cases.assert_silver(own.settings, own.log)


def assert_recorded(own: Lake, run_id: str, judged: list[Row], lines: list[str]) -> None:
    """control.redrives has each judged record once: where it is now, and whether it was corrected."""
    recorded = [row for row in lake.rows_of(own.settings, tables.REDRIVES) if row["run_id"] == run_id]
    parts = {
        "transactions": tables.SILVER_TRANSACTIONS,
        "duplicates": tables.TRANSACTIONS_DUPLICATES,
        "quarantine": tables.TRANSACTIONS_QUARANTINE,
    }
    where = {oracle.place(row): part for part, table in parts.items() for row in lake.rows_of(own.settings, table)}
    corrected = {(line["topic"], line["partition"], line["offset"]) for line in map(json.loads, lines)}
    assert Counter((oracle.place(row), row["outcome"], row["is_corrected"], row["rules_version"]) for row in recorded) == Counter(
        (place, where[place], place in corrected, "new") for place in map(oracle.place, judged)
    )
    assert {row["outcome"] for row in recorded} == {*parts}
    assert max(row["_newest_event_at"] for row in recorded if row["_newest_event_at"]) == oracle.at(START + 900 * MINUTE)


def test_a_re_drive_takes_the_batches_and_the_source_that_are_chosen(spark: SparkSession, own: Lake) -> None:
    rule = cases.OLDER["transactions"][0]
    broken = [row for row in own.log.bronze["transactions"] if rule in own.log.broken("transactions", row)]
    own.drive(spark, rule, "nothing", chosen=redrive_plan.Selection(source="file:other"))
    chosen = [row for row in broken if 2 <= row["_batch"] <= 3]
    assert 0 < len(chosen) < len(broken)
    own.log.newer |= {oracle.place(row) for row in chosen}
    own.drive(spark, rule, "chosen", chosen=redrive_plan.Selection(2, 3, "transactions"))
    cases.assert_silver(own.settings, own.log)
    recorded = [(row["run_id"], oracle.place(row)) for row in lake.rows_of(own.settings, tables.REDRIVES)]
    assert sorted(recorded) == sorted(("chosen", oracle.place(row)) for row in chosen)


def test_batches_that_are_no_range_are_refused(own: Lake) -> None:
    with pytest.raises(SettingsError, match="found batches 3 to 2, expected a first one that is not after the last"):
        redrive_plan.plan(own.settings, "type_known", None, None, (), redrive_plan.Selection(3, 2))


class Killed(Exception):
    """A job ended where a test wanted it to."""


@pytest.fixture
def kill(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """A function that says at which point jobs end from now on."""

    def at(point: str) -> None:
        def stop(name: str) -> None:
            if name == point:
                raise Killed(name)

        kill_points.reach(monkeypatch, stop)

    return at


def test_a_re_drive_that_dies_again_and_again_is_ended_by_a_repetition(spark: SparkSession, own: Lake, kill: Callable[[str], None]) -> None:
    """Each run gets some writes further, the last one asks for another rule. In between, nothing may build upon the tables."""
    rows = own.breaking("transactions", "amount_small")
    for write in ("silver.transactions_duplicates", "silver.transactions", "redrives of silver.transactions"):
        kill(f"after {write}")
        with pytest.raises(Killed):
            own.drive(spark, "amount_small", "killed")
        with pytest.raises(LedgerError, match="a re-drive of transactions stopped halfway"):
            redrives.refuse_halfway(own.settings)
    own.breaking("transactions", "type_known")
    kill("nowhere")
    own.drive(spark, "type_known", "another")
    redrives.refuse_halfway(own.settings)
    cases.assert_silver(own.settings, own.log)
    passed = Counter(oracle.place(row) for row in lake.rows_of(own.settings, tables.REDRIVES) if row["outcome"] != "quarantine")
    assert passed == Counter(oracle.place(row) for row in rows if not own.log.broken("transactions", row))


@pytest.mark.soak
@pytest.mark.parametrize("point", [f"{when} {write}" for write in WRITES for when in ("before", "after")])
def test_a_re_drive_that_dies_is_ended_by_another(spark: SparkSession, own: Lake, kill: Callable[[str], None], point: str) -> None:
    """The second run asks for another rule, and finds what the first has put in place."""
    own.breaking("transactions", "amount_small")
    kill(point)
    with pytest.raises(Killed):
        own.drive(spark, "amount_small", "killed")
    kill("nowhere")
    own.breaking("transactions", "type_known")
    own.drive(spark, "type_known", "another")
    own.drive(spark, "amount_small", "again")
    cases.assert_silver(own.settings, own.log)
