"""The rows of quarantine with their reasons, newest first, values masked."""

import csv
import io
import json
import shlex
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from expectations.wire_format import WireSchema, decode
from include.quality_page.masking import LARGEST, mask_detail, mask_key, mask_value
from include.quality_page.reading import Row, Warehouse, schemas_of
from include.quality_page.reasons import Reason, why
from spark_jobs.lake.table import Table
from spark_jobs.lake.tables import BATCHES
from spark_jobs.lake.topics import BY_TOPIC, TOPICS

TABLES = {topic.quarantine.name: topic.quarantine for topic in TOPICS}
PAGE = 50
MOST_PAGES = 2000
MOST_GROUPS = 50
MOST_EXPORTED, EXPORTED_AT_ONCE = 10_000, 500
GROUPS = ("rule", "batch", "source")

_COUNT = """select count(*) as n from t
    where _batch between $first and $last and ($rule = '' or array_has(broken_rules, $rule)) and ($source = '' or _topic = $source)"""
_BY = {
    "rule": """select rule as name, count(*) as n from (select unnest(broken_rules) as rule from t
        where _batch between $first and $last and ($source = '' or _topic = $source)) group by rule order by n desc, rule limit $count""",
    "batch": """select _batch as name, count(*) as n from t
        where ($rule = '' or array_has(broken_rules, $rule)) and ($source = '' or _topic = $source)
        group by _batch order by _batch desc limit $count""",
    "source": """select _topic as name, count(*) as n from t
        where _batch between $first and $last and ($rule = '' or array_has(broken_rules, $rule))
        group by _topic order by n desc, _topic limit $count""",
}
_PLACES = """select _batch, _topic, _partition, _offset from t
    where _batch between $first and $last and ($rule = '' or array_has(broken_rules, $rule)) and ($source = '' or _topic = $source)
    order by _batch desc, _topic, _partition, _offset limit $count offset $skip"""
# DataFusion tells the length of text only, so the bytes are counted as hexadecimal digits.
_ROWS = """select _batch, _topic, _partition, _offset, broken_rules, detail, size, key_size,
    case when size <= $largest then whole end as value, case when key_size <= $largest then whole_key end as key
    from (select _batch, _topic, _partition, _offset, broken_rules, detail, value as whole, key as whole_key,
        length(encode(value, 'hex')) / 2 as size, length(encode(key, 'hex')) / 2 as key_size
        from t where _batch in ($batches) and _offset in ($offsets))
    order by _batch desc, _topic, _partition, _offset"""
_TIMES = "select _topic, _partition, _offset, _timestamp from t where _batch in ($batches) and _offset in ($offsets)"
_RUNS = """select run_id, first_batch, last_batch, finished_at from t where job = 'silver' and "table" = $name
    and last_batch >= $first and first_batch <= $last order by last_batch"""
_LATEST = 2**63 - 1
_FORMULA = tuple("=+-@\t\r\n")


@dataclass(frozen=True)
class Filter:
    """Which rows: of a rule (None: of any), of batches from first to last (0 for no end), of a source (a topic's life or a file)."""

    rule: str | None = None
    first_batch: int = 0
    last_batch: int = 0
    source: str = ""

    @property
    def words(self) -> dict[str, object]:
        """The literals of the conditions above."""
        last = self.last_batch or _LATEST
        return {"rule": self.rule or "", "first": self.first_batch, "last": last, "source": self.source}


@dataclass(frozen=True)
class Quarantined:
    """A row as it may be seen. `fields` are pairs of name and masked value; `at` is Kafka's time, `run_id` silver's run."""

    topic: str
    partition: int
    offset: int
    batch: int
    reasons: tuple[Reason, ...]
    key: str
    fields: tuple[tuple[str, str], ...]
    at: datetime | None
    run_id: str | None

    @property
    def culprits(self) -> set[str]:
        """The fields that break a rule."""
        return {reason.field for reason in self.reasons if reason.field}

    @property
    def place(self) -> str:
        """The record's coordinates: `transactions 3:1207`."""
        return f"{self.topic} {self.partition}:{self.offset}"


def groups(warehouse: Warehouse, table: Table, chosen: Filter, by: str) -> dict[str, int]:
    """How many rows each rule, batch or source has; the filter's own choice of that kind does not count."""
    rows = warehouse.select(table, _BY[by], **chosen.words, count=MOST_GROUPS)
    return {str(row["name"]): row["n"] for row in rows}


def count(warehouse: Warehouse, table: Table, chosen: Filter) -> int:
    """How many rows the filter leaves."""
    rows = warehouse.select(table, _COUNT, **chosen.words)
    return rows[0]["n"] if rows else 0


def rows_of(warehouse: Warehouse, table: Table, chosen: Filter, skip: int = 0, most: int = PAGE) -> list[Quarantined]:
    """Some rows, from `skip` on; none where no values are shown. Values are read for these rows only, and not where they are large."""
    if not warehouse.shows_values:
        return []
    found = warehouse.select(table, _PLACES, **chosen.words, count=most, skip=skip)
    if not found:
        return []
    wanted, schemas = {_place(row) for row in found}, schemas_of(warehouse, table.topic)
    places = {"batches": sorted({row["_batch"] for row in found}), "offsets": sorted({row["_offset"] for row in found})}
    times = {_place(row): row["_timestamp"] for row in warehouse.select(BY_TOPIC[table.topic].bronze, _TIMES, **places)}
    first, last = places["batches"][0], places["batches"][-1]
    runs = warehouse.select(BATCHES, _RUNS, name=f"silver.{table.topic}", first=first, last=last)
    rows = [_read_by_schema(row, schemas) for row in warehouse.select(table, _ROWS, largest=LARGEST, **places)]
    return [_masked(table.topic, row, times.get(_place(row)), _run_of(runs, row["_batch"])) for row in rows if _place(row) in wanted]


def as_csv(warehouse: Warehouse, table: Table, chosen: Filter) -> Iterator[str]:
    """The rows as CSV, masked as on the page, the newest MOST_EXPORTED; many lines at a time."""
    yield _lines([("topic", "partition", "offset", "batch", "kafka_time_utc", "run", "key", "rules", "reasons", "fields")])
    for skip in range(0, MOST_EXPORTED, EXPORTED_AT_ONCE):
        rows = rows_of(warehouse, table, chosen, skip, EXPORTED_AT_ONCE)
        yield _lines(map(_cells, rows))
        if len(rows) < EXPORTED_AT_ONCE:
            return


def redrive_command(table: str, chosen: Filter) -> str:
    """The command that judges the chosen rows again."""
    words = ["redrive", "--rule", chosen.rule or "NAME", "--table", table]
    words += ["--first-batch", str(chosen.first_batch)] if chosen.first_batch else []
    words += ["--last-batch", str(chosen.last_batch)] if chosen.last_batch else []
    words += ["--source", shlex.quote(chosen.source)] if chosen.source else []
    return f".venv/bin/python -m spark_jobs.run {' '.join(words)}"


def redrive_conf(table: str, chosen: Filter) -> str:
    """The params of a run of the DAG `redrive_rows` that judges the chosen rows again, as JSON."""
    batches = {"first_batch": chosen.first_batch or None, "last_batch": chosen.last_batch or None}
    return json.dumps({"rule": chosen.rule, "table": table, **batches, "source": chosen.source})


def _masked(topic: str, row: Row, at: datetime | None, run_id: str | None) -> Quarantined:
    rules = tuple(row["broken_rules"] or ())
    key = mask_key(row["key"]) if row["key"] is not None or row["key_size"] is None else f"{row['key_size']:,} bytes"
    fields = tuple(mask_value(topic, row["value"], row["size"]))
    details = mask_detail(rules, row["detail"])
    return Quarantined(
        topic=row["_topic"],
        partition=row["_partition"],
        offset=row["_offset"],
        batch=row["_batch"],
        reasons=tuple(why(topic, rule, detail, key, dict(fields)) for rule, detail in zip(rules, details, strict=True)),
        key=key,
        fields=fields,
        at=at,
        run_id=run_id,
    )


def _read_by_schema(row: Row, schemas: Mapping[int, WireSchema]) -> Row:
    """The row with its value as JSON, unless it was judged before its schema was known."""
    return row if "parseable" in (row["broken_rules"] or ()) else row | {"value": decode(row["value"], schemas)}


def _place(row: Row) -> tuple[str, int, int]:
    return row["_topic"], row["_partition"], row["_offset"]


def _run_of(runs: list[Row], batch: int) -> str | None:
    """The run of silver that took a batch."""
    place = bisect_left(runs, batch, key=lambda run: run["last_batch"])
    return runs[place]["run_id"] if place < len(runs) and runs[place]["first_batch"] <= batch else None


def _cells(row: Quarantined) -> tuple[object, ...]:
    fields = "; ".join(f"{name}={value}" if name else value for name, value in row.fields)
    rules, says = " ".join(reason.rule for reason in row.reasons), " ".join(reason.says for reason in row.reasons)
    at = row.at.isoformat() if row.at else ""
    return row.topic, row.partition, row.offset, row.batch, at, row.run_id or "", row.key, rules, says, fields


def _lines(rows: Iterable[Iterable[object]]) -> str:
    """Lines of CSV."""
    text = io.StringIO()
    csv.writer(text).writerows(map(_harmless, row) for row in rows)
    return text.getvalue()


def _harmless(cell: object) -> object:
    """A cell; a text that a spreadsheet would take for a formula gets a quote before it."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA) else cell
