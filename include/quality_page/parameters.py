"""What the pages take from their addresses; anything else is answered with 422."""

import re
from typing import Annotated

from fastapi import Depends, Query
from pydantic import BeforeValidator

from include.quality_page import explained, quarantine
from spark_jobs.lake.tables import Table

PageNumber = Annotated[int, Query(ge=1, le=quarantine.MOST_PAGES)]
Batch = Annotated[int, BeforeValidator(lambda text: text or 0), Query(ge=0, le=2**62)]  # an empty field is no limit
ReleaseNumber = Annotated[int, BeforeValidator(lambda text: text or 0), Query(ge=0, le=2**62)]  # an empty field is no release: as it is now
Hours = Annotated[int, Query(ge=1, le=168)]
RuleName = Annotated[str, Query(pattern=r"^([a-z][a-z0-9_]{0,99})?$")]
SourceName = Annotated[str, Query(pattern=r"^[\w.#:/ -]{0,200}$")]
TableName = Annotated[str, Query(pattern=f"^({'|'.join(map(re.escape, quarantine.TABLES))})$")]
GoldName = Annotated[str, Query(pattern=f"^({'|'.join(map(re.escape, explained.TABLES))})$")]


def chosen_rows(
    table: TableName = "silver.transactions_quarantine",
    rule: RuleName = "",
    first_batch: Batch = 0,
    last_batch: Batch = 0,
    source: SourceName = "",
    chosen_for: TableName | None = None,
) -> tuple[Table, quarantine.Filter]:
    """A table and which of its rows. `last_batch` 0: up to the newest.

    Rule, batches and source are those of a table: chosen for another one (`chosen_for`), they do not count.
    """
    is_for_it = chosen_for in (None, table)
    chosen = quarantine.Filter(rule or None, first_batch, last_batch, source) if is_for_it else quarantine.Filter()
    return quarantine.TABLES[table], chosen


Chosen = Annotated[tuple[Table, quarantine.Filter], Depends(chosen_rows)]
