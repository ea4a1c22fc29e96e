"""`python duck.py HOME FILE...`: what silver does, in DuckDB: of transactions, from the same Parquet files of bronze to Parquet.

Values are parsed by `from_json`, the first of each id is found by a window, bad rows are apart. Beside DuckDB (requirements.txt) it needs
nothing of the project, so that it may run in an environment of its own. It keeps no rules, counts, histories, late rows or index of ids,
takes JSON that silver refuses, and reads amounts as doubles before they become decimals.
"""

import sys
from pathlib import Path

import duckdb

_SHAPE = (
    '{"transactionId": "VARCHAR", "accountId": "VARCHAR", "customerId": "VARCHAR", "eventTime": "BIGINT", "type": "VARCHAR", '
    '"operation": "VARCHAR", "amount": "DECIMAL(18,2)", "balance": "DECIMAL(18,2)"}'
)
_ARRIVAL = "_batch, _topic, _partition, _offset"


def main() -> None:
    """Read the files, and write three of them to the folder `duck` of the home."""
    folder, files = Path(sys.argv[1]) / "duck", sys.argv[2:]
    folder.mkdir()
    connection = duckdb.connect()
    connection.execute("set threads = 2; set memory_limit = '2GB'; set preserve_insertion_order = false")
    connection.execute(f"set temp_directory = '{folder}/spilled'")  # its own choice is a folder of the checkout
    connection.execute(
        f"""
        create temp table parsed as
        with texts as (select key, value, try(decode(value)) as text, {_ARRIVAL} from read_parquet($1)),
        fields as (
            select * exclude (text), case when json_valid(text) then try(from_json(text, '{_SHAPE}')) end as f from texts
        )
        select *, coalesce(f.transactionId is not null and f.amount is not null and f.eventTime is not null, false) as is_good from fields
        """,
        [files],
    )
    place = f"row_number() over (partition by f.transactionId order by {_ARRIVAL})"
    connection.execute(f"create temp table good as select f.*, {_ARRIVAL}, {place} as place from parsed where is_good")
    for name, query in (
        ("transactions", "from good where place = 1"),
        ("duplicates", "from good where place > 1"),
        ("bad", f"select key, value, {_ARRIVAL} from parsed where not is_good"),
    ):
        connection.execute(f"copy ({query}) to '{folder / name}.parquet' (format parquet, compression zstd)")


if __name__ == "__main__":
    main()
