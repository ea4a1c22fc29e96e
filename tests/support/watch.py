"""A reader beside the jobs: it opens the newest release again and again and asks every layer for the same number."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

from deltalake import DeltaTable

from include.reader import ReleaseReader, open_release
from spark_jobs import control
from spark_jobs.lake import tables
from spark_jobs.runtime.settings import Settings

COUNTS = {
    "bronze": "select count(*) as n from bronze.transactions",
    "aside": """select (select count(*) from silver.transactions_duplicates)
        + (select count(*) from silver.transactions_quarantine) as n""",
    "silver": "select count(*) as n from silver.transactions",
    "enriched": "select count(*) as n from gold.enriched_transactions",
    "days": "select sum(transactions) as n from gold.daily_totals",
    "activity": "select sum(transactions) as n from gold.customer_activity",
    "balances": "select sum(transactions) as n from gold.account_balances",
    "shares": "select max(debits + credits) as n from gold.debit_share",
}


@dataclass
class Seen:
    """The releases that were read, with the numbers found; and how often silver and gold disagreed for who reads without a release."""

    reads: list[tuple[int, dict[str, int]]] = field(default_factory=list)
    torn: int = 0

    def assert_one_moment_each(self, *releases: int) -> None:
        """These releases were seen, in this order; in each the layers agree, and every read of it found the same."""
        numbers = [number for number, _ in self.reads]
        assert numbers == sorted(numbers)
        assert tuple(dict.fromkeys(numbers)) == releases
        first_found = dict(reversed(self.reads))
        for number, found in self.reads:
            assert found == first_found[number], f"release {number}"
            assert found["bronze"] == found["silver"] + found["aside"], f"release {number}"
            assert {found[name] for name in COUNTS if name not in ("bronze", "aside")} == {found["silver"]}, f"release {number}"
        assert self.torn, "the tables were never between two moments: this proves nothing"


@contextmanager
def watching(settings: Settings) -> Iterator[Seen]:
    """Read while the block runs, and once more at its end."""
    seen, is_over = Seen(), threading.Event()

    def watch() -> None:
        while True:
            is_last = is_over.is_set()
            reader = open_release(settings)
            seen.reads.append((reader.release_id, _counts(reader)))
            seen.torn += _is_torn(settings)
            if is_last:
                return
            is_over.wait(0.2)

    with ThreadPoolExecutor(1) as pool:
        watcher = pool.submit(watch)
        try:
            yield seen
        finally:
            is_over.set()
        watcher.result()


def _counts(reader: ReleaseReader) -> dict[str, int]:
    return {name: int(reader.sql(query)["n"][0].as_py()) for name, query in COUNTS.items()}


def _is_torn(settings: Settings) -> bool:
    silver, gold = (DeltaTable(str(table.path(settings))) for table in (tables.SILVER_TRANSACTIONS, tables.DAILY_TOTALS))
    told = control.query(gold, "select cast(sum(transactions) as bigint) as n from t")["n"][0].as_py()
    return bool(silver.count() != told)
