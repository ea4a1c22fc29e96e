"""A release as DuckDB reads it from its catalogue, beside what the reader of releases answers."""

import re
from collections import Counter

import pyarrow as pa

from include.reader import open_catalogue, open_release
from spark_jobs.runtime.settings import Settings
from spark_jobs.runtime.values import to_rows


def assert_same_rows(settings: Settings, release_id: int) -> dict[str, int]:
    """Every table of a release has the same rows, of the same types, in its catalogue as for the reader; returns how many."""
    reader = open_release(settings, release_id)
    found: dict[str, int] = {}
    with open_catalogue(settings, release_id) as connection:
        for name in reader.tables:
            expected = reader.sql(f"select * from {name}")
            actual = connection.execute(f"select * from {name}").to_arrow_table()
            assert _kinds(actual) == _kinds(expected), name
            assert actual.schema.names == expected.schema.names, name
            assert Counter(map(str, to_rows(actual))) == Counter(map(str, to_rows(expected))), name
            counted = connection.execute(f"select count(*) from {name}").fetchall()
            assert counted == [(expected.num_rows,)], name
            found[name] = expected.num_rows
    assert found
    return found


def _kinds(rows: pa.Table) -> list[str]:
    """The types of the columns; engines name the elements of a list differently."""
    return [re.sub(r"list<\w+: ", "list<", str(field.type)) for field in rows.schema]
