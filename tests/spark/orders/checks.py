"""What must hold after any order of commands: of the tables as they are, and of every release."""

from collections import Counter
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from spark_jobs import control
from spark_jobs.audit import snapshot
from spark_jobs.control import scope
from spark_jobs.control.verdicts import Verdict
from spark_jobs.lake import tables
from spark_jobs.lake.tables import GOLD, Table
from spark_jobs.releases import releases, retention
from spark_jobs.runtime.settings import Settings
from tests.spark.orders import records
from tests.spark.orders.records import TOPICS, Kafka, Row
from tests.support import lake, oracle
from tests.support.gold_model import Found, model
from tests.support.redrive_cases import MINUTE, START

_PLACES = {
    "transactions": (tables.SILVER_TRANSACTIONS, tables.TRANSACTIONS_DUPLICATES, tables.TRANSACTIONS_QUARANTINE),
    "customers": (tables.SILVER_CUSTOMERS, tables.CUSTOMERS_QUARANTINE),
    "accounts": (tables.SILVER_ACCOUNTS, tables.ACCOUNTS_QUARANTINE),
}
_DIMENSIONS = {"customers": (tables.SILVER_CUSTOMERS, "customer_id"), "accounts": (tables.SILVER_ACCOUNTS, "account_id")}
_SUMS = ("output", "duplicates", "quarantined", "superseded", "no_change")


def check_at_rest(settings: Settings, kafka: Kafka) -> None:
    """All that Kafka holds is in bronze, silver and gold, once, judged as the control tables tell, and released."""
    check_bronze(settings, kafka)
    assert scope.unread_bronze(settings) == []
    assert not releases.has_unreleased_batches(settings), "the newest release lacks rows"
    check_batches(settings)
    check_silver(settings)
    check_gold(settings)
    check_releases(settings)


def check_bronze(settings: Settings, kafka: Kafka) -> None:
    """Bronze has every record of Kafka once."""
    for topic in TOPICS:
        held = Counter(map(records.place, lake.rows_of(settings, lake.BRONZE[topic])))
        assert held == Counter(map(records.place, kafka.records[topic])), f"bronze.{topic} is not what Kafka holds"


def check_gold(settings: Settings) -> None:
    """Gold is what plain Python makes of silver."""
    assert_same(gold_rows(settings, {}), gold_of(settings, {}))


def check_batches(settings: Settings) -> None:
    """control.batches has every batch of bronze in one row, whose counts add up to the batch."""
    for topic in TOPICS:
        sizes = Counter(row["_batch"] for row in lake.rows_of(settings, lake.BRONZE[topic]))
        done = 0
        for row in control.batches(settings, "silver", f"silver.{topic}"):
            told = f"control.batches of silver.{topic}, batches {row['first_batch']} to {row['last_batch']}"
            assert row["first_batch"] > done, f"{told}: found a batch twice"
            missed = [batch for batch in sizes if done < batch < row["first_batch"]]
            assert not missed, f"{told}: no row has batches {missed}"
            done = row["last_batch"]
            count = sum(size for batch, size in sizes.items() if row["first_batch"] <= batch <= done)
            assert row["input"] == count, f"{told}: found input {row['input']}, expected {count}"
            assert sum(row[name] for name in _SUMS) == count, f"{told}: its counts do not add up to {count}"
        assert done == max(sizes, default=0), f"control.batches of silver.{topic}: found batches up to {done}, expected {max(sizes)}"


def check_silver(settings: Settings) -> None:
    """Silver is what plain Python makes of bronze, each record judged by the rules that are recorded for it."""
    now = snapshot.of_now(settings)
    judged = {
        topic: [records.marked(topic, row, rules_of(settings, now, topic, row)) for row in bronze_of(settings, now, topic)]
        for topic in TOPICS
    }
    split = oracle.Transactions(judged["transactions"])
    assert_rows(settings, tables.SILVER_TRANSACTIONS, list(split.first.values()))
    assert_rows(settings, tables.TRANSACTIONS_DUPLICATES, split.duplicates)
    assert_rows(settings, tables.TRANSACTIONS_LATE, split.late)
    assert_rows(settings, tables.TRANSACTIONS_QUARANTINE, quarantine_of(split.quarantine))
    for topic, (table, key) in _DIMENSIONS.items():
        history = oracle.Dimension(judged[topic], key, table.columns)
        assert_rows(settings, table, [{name: row[name] for name in table.columns if name in row} for row in history.versions])
        assert_rows(settings, _PLACES[topic][-1], quarantine_of(history.quarantine))


def quarantine_of(rows: list[Row]) -> list[Row]:
    """Rows of quarantine; the oracle knows several rules of one row as one text."""
    return [row | {"broken_rules": row["broken_rules"][0].split(",")} for row in rows]


def bronze_of(settings: Settings, now: snapshot.Snapshot, topic: str) -> list[Row]:
    """The bronze rows that silver has taken."""
    return [row for row in lake.rows_of(settings, lake.BRONZE[topic]) if row["_batch"] <= now.last_batch(topic)]


def rules_of(settings: Settings, now: snapshot.Snapshot, topic: str, row: Row) -> str:
    """By which rule set a record was judged last, as the control tables tell."""
    redrives = [
        each
        for each in lake.rows_of(settings, tables.REDRIVES)
        if each["table"] == f"silver.{topic}"
        and records.place(each) == records.place(row)
        and not any(after < each["redriven_at"] <= upto for after, upto in now.withdrawn)
    ]
    if redrives:
        return str(max(redrives, key=lambda each: each["redriven_at"])["rules_version"])
    at = oracle.at(START + round(records.event_minute(topic, row) * MINUTE))
    for step in reversed([step for step in now.steps if topic in step.rules]):
        last = max((each.last for each in now.batches[topic] if each.at <= step.at), default=0)
        if step.start <= at < step.end and row["_batch"] <= last:
            return step.rules[topic]
    return next(each.rules for each in now.batches[topic] if row["_batch"] <= each.last)


def assert_rows(settings: Settings, table: Table, wanted: list[Row]) -> None:
    """The table has exactly these rows; of columns that they lack nothing is said."""
    names = list(wanted[0]) if wanted else list(table.columns)
    actual, expected = Counter(_values(row, names) for row in lake.rows_of(settings, table)), Counter(_values(row, names) for row in wanted)
    assert_counted(table.name, actual, expected)


def assert_counted(name: str, actual: Found, expected: Found) -> None:
    """Both have the same rows as often."""
    missing, extra = expected - actual, actual - expected
    told = f"{missing.total()} rows missing: {missing.most_common(2)}; {extra.total()} unexpected: {extra.most_common(2)}"
    assert not missing + extra, f"{name}: {told}"


def _values(row: Row, names: list[str]) -> tuple[Any, ...]:
    return tuple(tuple(row[name]) if isinstance(row[name], list) else row[name] for name in names)


def check_releases(settings: Settings) -> None:
    """Every release that is offered reads whole, and its gold is made of its silver."""
    for number in retention.offered(settings, datetime.now(UTC)):
        check_release(settings, releases.find_release(settings, number))


def check_release(settings: Settings, release: releases.Release) -> None:
    for name in release.versions:
        try:
            rows = table_rows(settings, tables.BY_NAME[name], release.versions)
        except Exception as error:
            raise AssertionError(f"release {release.release_id} does not read whole: {name}: {error}") from error
        assert len(rows) == release.rows[name], f"release {release.release_id}: {name} has {len(rows)} rows, expected {release.rows[name]}"
    for topic in TOPICS:
        check_places(settings, topic, release)
    try:
        assert_same(gold_rows(settings, release.versions), gold_of(settings, release.versions))
    except AssertionError as error:
        raise AssertionError(f"release {release.release_id}: its gold is not made of its silver: {error}") from None


def check_places(settings: Settings, topic: str, release: releases.Release) -> None:
    """In a release, every transaction of its bronze is in one place, and in no more than one of a dimension."""
    table = lake.BRONZE[topic]
    bronze = Counter(
        records.place(row) for row in table_rows(settings, table, release.versions) if row["_batch"] <= release.last_batches[table.name]
    )
    found = Counter(records.place(row) for each in _PLACES[topic] for row in table_rows(settings, each, release.versions))
    wrong = (found - bronze) if topic != "transactions" else (found - bronze) + (bronze - found)
    assert not wrong, f"release {release.release_id}: records of {topic} that are not in one place: {sorted(wrong)[:3]}"


def table_rows(settings: Settings, table: Table, versions: dict[str, int]) -> list[Row]:
    """The rows of a table at the version that is given for it, or now."""
    path = str(table.path(settings))
    if not DeltaTable.is_deltatable(path):
        return []
    rows: list[Row] = control.query(DeltaTable(path, version=versions.get(table.name)), "select * from t").to_pylist()
    return rows


def gold_rows(settings: Settings, versions: dict[str, int]) -> dict[str, Found]:
    return {
        table.name: Counter(tuple(row[name] for name in table.columns) for row in table_rows(settings, table, versions)) for table in GOLD
    }


def gold_of(settings: Settings, versions: dict[str, int]) -> dict[str, Found]:
    """What plain Python makes of silver."""
    rows, accounts, customers = (
        table_rows(settings, table, versions) for table in (tables.SILVER_TRANSACTIONS, tables.SILVER_ACCOUNTS, tables.SILVER_CUSTOMERS)
    )
    masked = [row | {"full_name": "Z** S****"} for row in customers]
    return model(rows, accounts, masked, settings.large_credit)


def assert_same(actual: dict[str, Found], expected: dict[str, Found]) -> None:
    for name, rows in expected.items():
        assert_counted(name, actual[name], rows)


def check_range(settings: Settings, version: str, first: float, last: float, rebuilt: Collection[str]) -> None:
    """Just after a backfill: every record of its range, of the tables that it was to rebuild, is judged by this rule set."""
    for topic in [topic for topic in TOPICS if f"silver.{topic}" in rebuilt]:
        quarantine = {records.place(row): row["broken_rules"] for row in lake.rows_of(settings, _PLACES[topic][-1])}
        taken = control.last_batch(settings, "silver", f"silver.{topic}")
        for row in lake.rows_of(settings, lake.BRONZE[topic]):
            if row["_batch"] <= taken and first <= records.event_minute(topic, row) < last:
                wanted = records.broken_rules(topic, row, version)
                found = quarantine.get(records.place(row), [])
                assert list(found) == wanted, f"after a backfill {records.place(row)} breaks {found}, expected {wanted} by rules {version}"


def check_gate(settings: Settings, before: dict[str, Verdict], after: dict[str, Verdict]) -> None:
    """Transactions that a gate of silver did not look at are those that an earlier verdict passed."""
    for table in _PLACES["transactions"]:
        old, new = before.get(table.name), after.get(table.name)
        if not (old and new and old.success and new.passed):
            continue
        first = new.first_batch if new.judged_at > old.judged_at else new.last_batch + 1
        head = DeltaTable(str(table.path(settings))).version()
        try:
            passed, now = (
                Counter(map(str, _before(table_rows(settings, table, {table.name: version}), first))) for version in (old.version, head)
            )
        except DeltaError:  # maintenance has removed the older version
            continue
        assert passed == now, f"gate silver: rows of {table.name} changed before batch {first}, and were not judged"


def _before(rows: list[Row], batch: int) -> list[Row]:
    return [row for row in rows if row["_batch"] < batch]
