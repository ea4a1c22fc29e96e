"""Random records of all three topics for the tests of re-drives, some under broken rules, and what silver must hold of them.

The computation is that of tests/support/oracle.py: plain Python over the records in order of arrival. Whether a record is
valid is known from how it was made.
"""

import copy
import json
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

from expectations import row_rules
from spark_jobs.lake import tables
from spark_jobs.lake.tables import Table
from spark_jobs.runtime.settings import Settings, read_settings
from tests.support import lake, oracle
from tests.support.rows import KEYS, MESSAGES, message

Row = dict[str, Any]
Place = tuple[str, int, int]

BATCHES = 5  # of `judge_by_older`
SETTINGS = {"LEDGER_LARGE_CREDIT": "1"}
MINUTE = 60_000
START = 1_357_081_200_000  # an hour before midnight
# A rule of the older set only, for each topic that has one: its name, the field, and what must hold.
OLDER = {
    "transactions": ("amount_small", "amount", "try_cast(amount.text as decimal(38,2)) < 1000"),
    "customers": ("zipcode_known", "zipcode", "is_deletion or zipcode.text <> '0'"),
}


def write_rules(folder: Path, *, older: bool) -> None:
    """The rule files of today, or an older version of them that has one more rule for some topics."""
    folder.mkdir(exist_ok=True)
    for topic in ("transactions", "customers", "accounts"):
        content = yaml.safe_load((Path(row_rules.__file__).parent / "rules" / f"{topic}.yaml").read_text())
        if older and topic in OLDER:
            name, of, holds = OLDER[topic]
            content["rules"].append(content["rules"][-1] | {"name": name, "field": of, "holds": holds})
        (folder / f"{topic}.yaml").write_text(yaml.safe_dump(content | {"version": "old" if older else "new"}))
    row_rules.read_rules.cache_clear()


@contextmanager
def older_rules(folder: Path) -> Iterator[Callable[[], None]]:
    """The older rules are in force; call what it gives to put the newer ones in force. Afterwards all is as it was."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_rules, "FOLDER", folder)
        write_rules(folder, older=True)
        yield lambda: write_rules(folder, older=False)
    row_rules.read_rules.cache_clear()


@contextmanager
def newer_rules(folder: Path) -> Iterator[None]:
    """The newer rules are in force. Afterwards all is as it was."""
    with older_rules(folder) as put_newer_in_force:
        put_newer_in_force()
        yield


@dataclass
class Log:
    """Bronze records, the values by which they are judged now, and which of them by the newer rules."""

    bronze: dict[str, list[Row]] = field(default_factory=lambda: {"transactions": [], "customers": []})
    values: dict[Place, bytes] = field(default_factory=dict)
    newer: set[Place] = field(default_factory=set)

    def broken(self, topic: str, row: Row) -> list[str]:
        """The rules that a record breaks as it is judged now."""
        fields = json.loads(self.values.get(oracle.place(row)) or row["value"])
        known = ["type_known"] if fields.get("type") == "Transfer" else []
        if topic == "customers":
            known = ["district_id_whole"] if fields.get("districtId") == "x" else []
        is_older = oracle.place(row) not in self.newer
        of_older = fields.get("amount", 0) >= 1000 if topic == "transactions" else fields.get("zipcode") == "0"
        return [*known, *([OLDER[topic][0]] if is_older and of_older else [])]

    def judged(self, topic: str) -> list[Row]:
        """The records as the oracle takes them: those that break a rule carry a mark."""
        rows = []
        for row in self.bronze[topic]:
            rules = self.broken(topic, row)
            mark = [{"key": "ledger-injected", "value": f"malformed:{','.join(rules)}".encode()}] if rules else []
            rows.append(row | {"value": self.values.get(oracle.place(row), row["value"]), "headers": mark})
        return rows

    def quarantine(self, topic: str) -> list[Row]:
        """What must be in quarantine: bronze's bytes, and the rules that are broken now."""
        broken = ((row, self.broken(topic, row)) for row in self.bronze[topic])
        return [
            {"key": row["key"], "value": row["value"], "broken_rules": rules, **oracle.coordinates(row)} for row, rules in broken if rules
        ]


@dataclass(frozen=True)
class Judged:
    """A warehouse, and what it was made of."""

    settings: Settings
    log: Log

    def copy(self, home: Path) -> tuple[Settings, Log]:
        """The same, to be changed."""
        shutil.copytree(self.settings.home, home)
        return read_settings({"LEDGER_HOME": str(home), **SETTINGS}), copy.deepcopy(self.log)


def judge_by_older(spark: SparkSession, folder: Path) -> Judged:
    """Five batches that silver took in two runs by the older rules: duplicates, late rows, quarantine, late versions, a deletion."""
    settings, log, chance = read_settings({"LEDGER_HOME": str(folder / "home"), **SETTINGS}), Log(), random.Random(3)
    accounts = [message("accounts", districtId=n, updateTime=START + n * 60 * MINUTE) for n in (2, 0, 1)]
    lake.arrive(settings, "accounts", 1, [*accounts, (b"A00000001", None), (b"A00000001", b"{")])
    with older_rules(folder / "rules"):
        for batches in (range(1, 3), range(3, BATCHES + 1)):
            for batch in batches:
                arrive(settings, log, batch, chance)
            lake.run_silver(spark, settings, f"silver-{batches[-1]}")
        assert_silver(settings, log)
    return Judged(settings, log)


def arrive(settings: Settings, log: Log, batch: int, chance: random.Random) -> None:
    """One more batch of each topic."""
    for topic, values in (("transactions", transactions(chance, 24)), ("customers", customers(chance, 8))):
        lake.arrive(settings, topic, batch, [(str(fields[KEYS[topic]]).encode(), json.dumps(fields).encode()) for fields in values])
        log.bronze[topic] = sorted((row | {"headers": []} for row in lake.rows_of(settings, lake.BRONZE[topic])), key=oracle.arrival)


def transactions(chance: random.Random, count: int) -> list[Row]:
    """Values of transactions: few ids, so that they meet; some amounts that only the newer rules allow, some unknown types."""
    return [
        MESSAGES["transactions"]
        | {
            "transactionId": f"T{chance.randrange(2 * count)}",
            "eventTime": START + chance.randrange(200) * MINUTE,
            "type": chance.choice(["Credit", "Debit", "Debit", "Transfer"]),
            "amount": chance.choice([1, 2, 5000]),
        }
        for _ in range(count)
    ]


def customers(chance: random.Random, count: int) -> list[Row]:
    """Values of customers: few keys and times, so that versions supersede and equal each other."""
    return [
        MESSAGES["customers"]
        | {
            "customerId": f"C0000000{chance.randrange(3)}",
            "city": chance.choice("abc"),
            "zipcode": chance.choice(["1", "1", "0"]),
            "districtId": chance.choice(["1", "1", "1", "x"]),
            "updateTime": START + chance.randrange(6) * MINUTE,
        }
        for _ in range(count)
    ]


def assert_holds(settings: Settings, table: Table, wanted: list[Row]) -> None:
    """The table has exactly these rows; of columns that they lack nothing is said."""
    columns = list(wanted[0]) if wanted else []
    rows = [{name: row[name] for name in columns} for row in lake.rows_of(settings, table)]
    missing, extra = [row for row in wanted if row not in rows], [row for row in rows if row not in wanted]
    assert (missing, extra, len(rows)) == ([], [], len(wanted)), f"{table.name}: missing {missing[:2]}, extra {extra[:2]}, {len(rows)} rows"


def assert_silver(settings: Settings, log: Log) -> oracle.Transactions:
    """Silver is what the oracle makes of the records."""
    split = oracle.Transactions(log.judged("transactions"))
    assert_holds(settings, tables.SILVER_TRANSACTIONS, list(split.first.values()))
    assert_holds(settings, tables.TRANSACTIONS_DUPLICATES, split.duplicates)
    assert_holds(settings, tables.TRANSACTIONS_LATE, split.late)
    assert_holds(settings, tables.TRANSACTIONS_QUARANTINE, log.quarantine("transactions"))
    history = oracle.Dimension(log.judged("customers"), "customer_id", tables.SILVER_CUSTOMERS.columns)
    assert_holds(settings, tables.SILVER_CUSTOMERS, [{name: row[name] for name in _HISTORY} for row in history.versions])
    assert_holds(settings, tables.CUSTOMERS_QUARANTINE, log.quarantine("customers"))
    return split


_HISTORY = ["customer_id", "city", "zipcode", "district_id", "valid_from", "valid_to", "is_current", *oracle.COORDINATES, "_batch"]
