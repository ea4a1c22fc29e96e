"""A release names silver and the gold that was made of it, by what gold's own commits say."""

from collections.abc import Callable

import pytest
from deltalake import DeltaTable

from spark_jobs.lake.tables import BY_NAME, ENRICHED_TRANSACTIONS, GOLD, SILVER_CUSTOMERS, SILVER_TRANSACTIONS, Table
from spark_jobs.releases import releases
from spark_jobs.runtime.errors import GateClosed
from spark_jobs.runtime.settings import Settings
from tests.support.aging import follow
from tests.support.publishing import one_more, pass_gates, publish
from tests.support.warehouse import at, good_rows, version_of, write

Copy = Callable[[], Settings]


def version(settings: Settings, table: Table) -> int:
    return DeltaTable(str(table.path(settings))).version()


def released_once(copy_home: Copy) -> Settings:
    """Release 1; then a second version of customers, which makes no batch of transactions."""
    settings = copy_home()
    assert publish(settings) == 1
    more = version_of({"customer_id": "C00000009", "full_name": "Bob"}, at(0, 0, 1, "customers"))
    write(settings, {SILVER_CUSTOMERS.name: [more]})
    pass_gates(settings, layers=("bronze", "silver"))
    return settings


def test_gold_that_was_judged_before_silver_moved_on_is_not_released_beside_it(copy_home: Copy) -> None:
    settings = released_once(copy_home)
    message = r"gold\.enriched_transactions at version 1 is of silver\.customers at version 1, but version 2 was judged"
    with pytest.raises(GateClosed, match=message):  # gold has not run
        releases.publish(settings)
    write(settings, {ENRICHED_TRANSACTIONS.name: good_rows()[ENRICHED_TRANSACTIONS.name]}, mode="overwrite")
    with pytest.raises(GateClosed, match=message):  # gold has run, and no gate has judged what it wrote
        releases.publish(settings)
    pass_gates(settings, layers=("gold",))
    assert releases.publish(settings) == 2
    assert releases.newest_release(settings).versions == {name: version(settings, table) for name, table in BY_NAME.items()}


def test_gold_that_changed_no_row_keeps_its_verdict(copy_home: Copy) -> None:
    """As for a customer without transactions: gold's commit says how far it has come, and no gate judges it anew."""
    settings = released_once(copy_home)
    follow(settings, 2, "gold silver.customers", ENRICHED_TRANSACTIONS)
    assert releases.publish(settings) == 2
    assert releases.newest_release(settings).versions[ENRICHED_TRANSACTIONS.name] == version(settings, ENRICHED_TRANSACTIONS) - 1


def test_gold_that_died_between_two_tables_is_not_released(copy_home: Copy) -> None:
    settings = copy_home()
    one_more(settings, 3)
    half = len(GOLD) // 2
    follow(settings, version(settings, SILVER_TRANSACTIONS), "gold", *GOLD[:half])
    pass_gates(settings, last_batch=3)
    with pytest.raises(GateClosed, match=r"gold was made of other silver: ") as raised:
        releases.publish(settings)
    assert [table.name for table in GOLD if f"{table.name} at" in str(raised.value)] == [table.name for table in GOLD[half:]]
    follow(settings, version(settings, SILVER_TRANSACTIONS), "gold", *GOLD[half:])
    assert releases.publish(settings) == 1


def test_silver_without_a_row_needs_no_gold_that_followed_it(copy_home: Copy) -> None:
    """There is no change of it that gold could have taken."""
    settings = copy_home()
    DeltaTable(str(SILVER_CUSTOMERS.path(settings))).delete()
    path = ENRICHED_TRANSACTIONS.path(settings)
    log = path / "_delta_log" / f"{1:020}.json"
    log.write_text("\n".join(line for line in log.read_text().splitlines() if "gold silver.customers" not in line))
    assert DeltaTable(str(path)).transaction_version("gold silver.customers") is None
    assert publish(settings) == 1
