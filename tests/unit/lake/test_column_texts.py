"""Every column of a table that people look at says what it means."""

from spark_jobs.lake import tables
from spark_jobs.lake.column_texts import SHARED, meaning
from spark_jobs.lake.table import Table


def test_every_column_has_a_text() -> None:
    every = [(table, column) for table in tables.BY_NAME.values() if not table.query for column in table.columns]
    assert len(every) > 200
    assert [f"{table.name}.{column}" for table, column in every if not meaning(table, column)] == []


def test_no_text_is_about_a_column_that_is_not_there() -> None:
    every = (*tables.BRONZE, *tables.SILVER, *tables.GOLD, *tables.LIVE)
    assert SHARED.keys() - {column for table in every for column in table.columns} == set()
    assert [(table.name, column) for table in every for column in table.texts if column not in table.columns] == []


def test_a_tables_own_text_comes_first() -> None:
    table = Table("gold.x", "day date, amount bigint, other string", texts={"amount": "Something else"})
    assert [meaning(table, column) for column in table.columns] == [SHARED["day"], "Something else", ""]
