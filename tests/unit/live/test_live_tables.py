"""The live tables are one list: each has a query, and the page of live tables names it."""

from spark_jobs.lake import tables
from spark_jobs.live.queries import QUERIES
from spark_jobs.runtime.settings import ROOT


def test_each_live_table_has_a_query_and_is_on_the_page() -> None:
    assert [query.table for query in QUERIES if query.table in tables.LIVE_IN_SQL] == list(tables.LIVE_IN_SQL)
    assert {query.table for query in QUERIES} == set(tables.LIVE_RESULTS)
    assert len(QUERIES) == len(tables.LIVE_RESULTS)
    page = (ROOT / "include/docs/live.md").read_text()
    assert [table.name for table in tables.LIVE if table not in tables.LIVE_IN_SQL and f"| `{table.name}` |" not in page] == []


def test_what_a_query_reads_beside_the_live_rows_is_a_source_of_it_and_a_table_of_bronze() -> None:
    beside = {query.beside: query for query in QUERIES if query.beside}
    assert set(beside) == set(tables.LIVE_BESIDE.values())
    for table, query in beside.items():
        assert table.layer == "bronze"
        assert [query.source(name) for name in query.sources] == [query.follows, table]
