"""Rows of gold.live_transactions as the intake leaves them, for tests of what is published from there."""

import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from spark_jobs.lake.tables import LIVE_TRANSACTIONS
from spark_jobs.live import checkpoints
from spark_jobs.runtime.settings import Settings

BEGIN = datetime(2024, 1, 1, tzinfo=UTC)


def fill(settings: Settings, sizes: dict[int, int]) -> list[str]:
    """Append batches of so many rows, by number, in no particular order within a file; returns the ids in order of arrival.

    The ids begin with the name of the test's folder: the tests share a broker.
    """
    ids, chance = [], random.Random(1)
    for batch, size in sizes.items():
        rows = [
            {
                "transaction_id": f"{settings.home.parent.name}:{batch:03}-{place:04}",
                "account_id": 'A"1',
                "customer_id": "C",
                "event_at": BEGIN + timedelta(milliseconds=place),
                "event_on": BEGIN.date(),
                "type": chance.choice(("Debit", "Credit")),
                "operation": None if place % 2 else "Credit in Cash",
                "amount": Decimal("12345678901234.10"),
                "balance": Decimal("-0.05"),
                "_topic": "transactions",
                "_partition": place * 5 // size,
                "_offset": place,
                "_batch": batch,
            }
            for place in range(size)
        ]
        ids += [str(row["transaction_id"]) for row in rows]
        chance.shuffle(rows)
        table = DeltaTable(str(LIVE_TRANSACTIONS.path(settings)))
        schema = pa.schema(LIVE_TRANSACTIONS.delta_schema().to_arrow())
        taken = CommitProperties(app_transactions=[Transaction(checkpoints.intake_application(settings), batch)])
        ordered = pa.Table.from_pylist([{name: row.get(name) for name in schema.names} for row in rows], schema)
        write_deltalake(table, ordered, mode="append", commit_properties=taken)
    return ids
