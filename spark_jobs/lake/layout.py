"""How the rows of a table are sorted in its files, and how they are found there."""

from spark_jobs.lake.silver_tables import ARRIVAL
from spark_jobs.lake.table import Table

# How gold is written: rows are found by pages of a thousand, in files sorted by time.
SMALL_PAGES = {"parquet.page.row.count.limit": "1000", "spark.sql.parquet.compression.codec": "zstd"}


def order_of(table: Table) -> tuple[str, ...]:
    """The columns by which files are sorted: the order of arrival or the keys; in gold the time, then the keys."""
    if table.layer == "gold":
        return tuple(dict.fromkeys((table.time_column or "", *table.keys)))
    return ARRIVAL if "_batch" in table.columns else table.keys


def merge_keys(table: Table) -> tuple[str, ...]:
    """The columns by which a merge finds rows; all columns if the table has no keys."""
    return table.merge_keys or table.keys or table.columns


def merge_time(table: Table) -> str | None:
    """The time, or day, among a gold table's merge keys; None if it has none, because its rows span all time."""
    return table.time_column if table.layer == "gold" and table.time_column in merge_keys(table) else None
