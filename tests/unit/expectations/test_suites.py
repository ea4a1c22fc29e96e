"""Every suite fits its table and passes good rows; every expectation fails on rows that break it."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from expectations.gate import Judgement, judge_profiles
from expectations.profile import Profile, Query, measure_table
from expectations.suites import FOLDER, Suite, read_suite
from spark_jobs import control
from spark_jobs.control.judged_rows import Written, open_query
from spark_jobs.lake.tables import HOLES, LAYERS
from spark_jobs.lake.topic import Topic
from spark_jobs.lake.topics import TOPICS
from tests.support.changes import Case
from tests.support.suite_cases import CASES
from tests.support.warehouse import LOADED, at, bronze, good_rows, settings_of, table_named, write
from tests.support.warning_cases import many_conflicting

JUDGED = [table for layer in LAYERS.values() for table in layer]
NAMES = [table.name for table in JUDGED]


def query_of(home: Path, table: str) -> Query:
    last = 2 if "transactions" in table or table.startswith("gold") else 1
    return open_query(settings_of(home), Written(table_named(table), 0, 1, last), {}, LOADED)


def profile_of(home: Path, table: str) -> Profile:
    return measure_table(read_suite(table), query_of(home, table))


def test_every_table_has_a_suite_and_every_suite_a_table() -> None:
    assert NAMES
    assert all(read_suite(name).expectations for name in NAMES)
    assert {file.stem for file in FOLDER.glob("*.json")} <= set(NAMES)


@pytest.mark.parametrize("table", NAMES)
def test_a_suite_measures_good_rows_of_the_declared_schema(table: str, good_home: Path) -> None:
    profile = profile_of(good_home, table)
    assert profile.errors == {}
    assert profile.values.keys() == {measure.name for measure in read_suite(table).measures}


def test_a_hole_that_was_accepted_is_no_gap_and_a_gap_beside_it_is_one(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    write(settings, {"bronze.transactions": [bronze(at(0, offset, 1), b"T", b"{}") for offset in (0, 1, 3, 4, 7)]})
    hole = {"table": "bronze.transactions", "_topic": "transactions", "_partition": 0, "why": "too large"}
    accepted = [
        hole | {"first_offset": first, "last_offset": last, "recorded_at": LOADED} for first, last in ((2, 2), (4, 4), (4, 4), (9, 20))
    ]
    control.append(settings, HOLES, accepted)
    suite = read_suite("bronze.transactions").about({"skipped_offsets"})
    query = open_query(settings, Written(table_named("bronze.transactions"), 1, 1, 1), {}, LOADED)
    assert measure_table(suite, query).values == {"skipped_offsets": 2}  # 5 and 6; of the hole that was filled nothing is left out
    (first,) = (measure.first for measure in suite.measures)
    assert [*query(first or "").to_pylist()[0].values()] == ["transactions/0 between 4 and 7"]


def test_a_batch_that_fills_a_hole_skips_nothing(tmp_path: Path) -> None:
    """As a replay brings one: what lies between its records came before."""
    settings = settings_of(tmp_path)
    write(settings, {"bronze.transactions": [bronze(at(0, offset, 1), b"T", b"{}") for offset in (0, 2, 3, 7)]})
    write(settings, {"bronze.transactions": [bronze(at(0, offset, 2), b"T", b"{}") for offset in (1, 4)]})
    suite = read_suite("bronze.transactions").about({"skipped_offsets"})
    written = Written(table_named("bronze.transactions"), 2, 2, 2)
    assert measure_table(suite, open_query(settings, written, {}, LOADED)).values == {"skipped_offsets": 0}
    write(settings, {"bronze.transactions": [bronze(at(0, 8, 3), b"T", b"{}"), bronze(at(0, 5, 3), b"T", b"{}")]})
    written = Written(table_named("bronze.transactions"), 3, 2, 3)
    query = open_query(settings, written, {}, LOADED)
    assert measure_table(suite, query).values == {"skipped_offsets": 1}
    (first,) = (measure.first for measure in suite.measures)
    assert [*query(first or "").to_pylist()[0].values()] == ["transactions/0 between 5 and 7"]


@pytest.mark.parametrize(("conflicting", "others", "found"), [(99, 0, 0), (100, 0, 962), (100, 19896, 5), (100, 4896, 20), (100, 4895, 21)])
def test_a_few_conflicting_duplicates_count_as_none(tmp_path: Path, conflicting: int, others: int, found: int) -> None:
    """Of the valid rows, which are the four good ones, and the duplicates."""
    settings, rows = settings_of(tmp_path), good_rows()
    rows["silver.transactions_duplicates"][0]["is_conflicting"] = True
    many_conflicting(others, conflicting - 1)(rows)
    write(settings, {name: rows[name] for name in ("silver.transactions", "silver.transactions_duplicates")})
    suite = read_suite("silver.transactions_duplicates").about({"conflicting_per_thousand"})
    assert measure_table(suite, query_of(tmp_path, suite.table)).values == {"conflicting_per_thousand": found}


@pytest.mark.parametrize("file", sorted(FOLDER.rglob("*.json")), ids=lambda file: file.stem)
def test_a_suite_is_one_of_great_expectations(file: Path) -> None:
    gx = pytest.importorskip("great_expectations")
    content = json.loads(file.read_text())
    suite = gx.ExpectationSuite(**content)
    assert len(suite.expectations) == len(content["expectations"])
    assert all(expectation.description and expectation.severity for expectation in suite.expectations)


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.name)
def test_the_suite_of_a_topic_names_what_the_topic_declares(topic: Topic) -> None:
    meta = json.loads((FOLDER / f"{topic.silver.name}.json").read_text())["meta"]
    assert (meta["kind"], meta["key"]) == ("versions" if topic.has_versions else "events", topic.key)


def test_a_table_may_expect_otherwise_than_its_kind(tmp_path: Path) -> None:
    shutil.copy(FOLDER / "silver.accounts.json", tmp_path)
    common = read_suite("silver.accounts_quarantine")
    own = {**common.expectations[1], "severity": "warning"}
    (tmp_path / "silver.accounts_quarantine.json").write_text(json.dumps({"name": "silver.accounts_quarantine", "expectations": [own]}))
    found = read_suite("silver.accounts_quarantine", tmp_path)
    assert found.expectations == (common.expectations[0], *common.expectations[2:], own)


def test_every_expectation_has_a_case() -> None:
    same = {f"bronze.{topic}" for topic in ("customers", "accounts")} | {
        f"silver.{topic}_quarantine" for topic in ("customers", "accounts")
    }
    names = [name for name in NAMES if name not in same]
    expected = {(name, expectation["kwargs"]["column"]) for name in names for expectation in read_suite(name).expectations}
    judged_by_a_gate = {("bronze.transactions", "records_of_earlier_batches")}  # test_gates.py: it takes a later batch
    assert expected - {(case.table, name) for case in CASES for name in case.failed} == judged_by_a_gate


@pytest.fixture(scope="module")
def judgements(good_home: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Judgement]:
    """All cases, judged in one run of Great Expectations, and each table as it should be."""
    folder = tmp_path_factory.mktemp("cases")
    measured: list[tuple[Suite, Profile]] = []
    queries: dict[str, Query] = {}

    def add(name: str, table: str, home: Path) -> None:
        queries[name] = query_of(home, table)
        measured.append((replace(read_suite(table), table=name), replace(profile_of(home, table), table=name)))

    for name in NAMES:
        add(name, name, good_home)
    for number, case in enumerate(CASES):
        home = folder / str(number)
        shutil.copytree(good_home, home)
        rows, good = good_rows(), good_rows()
        case.change(rows)
        write(settings_of(home), {name: changed for name, changed in rows.items() if changed != good[name]}, mode="overwrite")
        add(f"case_{number}", case.table, home)
    found = judge_profiles(folder / "quality", "cases", measured, queries, "cases", LOADED)
    return {judgement.table: judgement for judgement in found}


@pytest.mark.parametrize("table", NAMES)
def test_good_rows_pass(table: str, judgements: dict[str, Judgement]) -> None:
    assert judgements[table].failures == ()
    assert judgements[table].passed


@pytest.mark.parametrize("case", CASES, ids=str)
def test_broken_rows_fail_exactly_what_they_break(case: Case, judgements: dict[str, Judgement]) -> None:
    judgement = judgements[f"case_{CASES.index(case)}"]
    assert {failure.expectation for failure in judgement.failures} == case.failed
    is_warning = case.which.endswith("-warning") or case.failed == {"skipped_offsets"}
    assert judgement.passed is is_warning
    located = {measure.name for measure in read_suite(case.table).measures if measure.first}
    firsts = {failure.expectation: failure.found.partition("; first: ")[2] for failure in judgement.failures}
    assert {name for name, first in firsts.items() if first} == located & case.failed
    assert not [first for first in firsts.values() if first.startswith(("cannot be named", "none is left"))]


def test_the_first_offending_row_is_named_by_ids_and_coordinates(judgements: dict[str, Judgement]) -> None:
    """One of each kind, word by word."""
    found = {
        (case.table, failure.expectation, case.which): failure.found
        for number, case in enumerate(CASES)
        for failure in judgements[f"case_{number}"].failures
    }
    lost = found["silver.transactions", "rows_not_in_one_place", "-lost"]
    twice = found["silver.transactions", "rows_not_in_one_place", "-twice"]
    assert lost == "1; first: transactions/1/0 is in none"
    assert twice == "1; first: transactions/0/0 is in quarantine, transactions"
    assert found["silver.transactions", "repeated_ids", ""] == "1; first: T1 in 2 rows"
    assert found["bronze.transactions", "missing_coordinates", "-offset"] == "1; first: transactions/0/? of batch 1"
    unbalanced = (
        "1000; first: account A00000001, day 2013-01-03: opening 1000.00 + credits 0.00 - debits 1.00 = 999.00, found closing 1000.00"
    )
    assert found["gold.account_days", "unbalanced_days_of_1000", "-warning"] == unbalanced
    hole = "1; first: C00000001: one ends 2013-01-30T00:00:00Z, the next begins 2013-01-31T00:00:00Z"
    assert found["silver.customers", "holes_and_overlaps", "-hole"] == hole


def test_no_query_for_the_first_row_speaks_of_a_person() -> None:
    firsts = [measure.first for name in NAMES for measure in read_suite(name).measures if measure.first]
    personal = r"full_name|social|phone|email|address[12]|birth_date|zipcode|detail"
    assert len(firsts) > 20
    assert [first for first in firsts if re.search(rf"\b({personal})\b", first)] == []
    assert [first for first in firsts if re.search(r"\b(key|value)\b", first.partition(" from ")[0])] == []
