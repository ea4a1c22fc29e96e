"""The rows of quarantine with their reasons, newest first, values masked."""

from dataclasses import dataclass

from include.quality_page.masking import LARGEST, mask_detail, mask_key, mask_value
from include.quality_page.reading import Row, Warehouse
from spark_jobs.lake.table import Table
from spark_jobs.lake.topics import TOPICS

TABLES = {topic.quarantine.name: topic.quarantine for topic in TOPICS}
PAGE = 50
MOST_PAGES = 2000

_COUNT = """select count(*) as n from t where _batch between $first and $last and ($rule = '' or array_has(broken_rules, $rule))"""
_RULES = """select rule, count(*) as n from (select unnest(broken_rules) as rule from t where _batch between $first and $last)
    group by rule order by rule"""
_PLACES = """select _batch, _topic, _partition, _offset from t
    where _batch between $first and $last and ($rule = '' or array_has(broken_rules, $rule))
    order by _batch desc, _topic, _partition, _offset limit $count offset $skip"""
# DataFusion tells the length of text only, so the bytes are counted as hexadecimal digits.
_ROWS = """select _batch, _topic, _partition, _offset, broken_rules, detail, size, key_size,
    case when size <= $largest then whole end as value, case when key_size <= $largest then whole_key end as key
    from (select _batch, _topic, _partition, _offset, broken_rules, detail, value as whole, key as whole_key,
        length(encode(value, 'hex')) / 2 as size, length(encode(key, 'hex')) / 2 as key_size
        from t where _batch in ($batches) and _offset in ($offsets))
    order by _batch desc, _topic, _partition, _offset"""
_LATEST = 2**63 - 1


@dataclass(frozen=True)
class Filter:
    """Which rows: of a rule (None: of any), of batches from first to last (0 for no end)."""

    rule: str | None = None
    first_batch: int = 0
    last_batch: int = 0

    @property
    def words(self) -> dict[str, object]:
        """The literals of the conditions above."""
        return {"rule": self.rule or "", "first": self.first_batch, "last": self.last_batch or _LATEST}


@dataclass(frozen=True)
class Quarantined:
    """A row as it may be seen. `fields` are pairs of name and masked value."""

    topic: str
    partition: int
    offset: int
    batch: int
    rules: tuple[str, ...]
    reasons: tuple[str, ...]
    key: str
    fields: tuple[tuple[str, str], ...]


def rules_of(warehouse: Warehouse, table: Table, chosen: Filter) -> dict[str, int]:
    """How many rows broke each rule, by its name; the rule of the filter does not count."""
    return {row["rule"]: row["n"] for row in warehouse.select(table, _RULES, **chosen.words)}


def count(warehouse: Warehouse, table: Table, chosen: Filter) -> int:
    """How many rows the filter leaves."""
    rows = warehouse.select(table, _COUNT, **chosen.words)
    return rows[0]["n"] if rows else 0


def rows_of(warehouse: Warehouse, table: Table, chosen: Filter, page: int) -> list[Quarantined]:
    """One page of rows. Values are read for these rows only, and not where they are large."""
    found = warehouse.select(table, _PLACES, **chosen.words, count=PAGE, skip=(page - 1) * PAGE)
    if not found:
        return []
    wanted = {(row["_topic"], row["_partition"], row["_offset"]) for row in found}
    rows = warehouse.select(
        table,
        _ROWS,
        largest=LARGEST,
        batches=sorted({row["_batch"] for row in found}),
        offsets=sorted({row["_offset"] for row in found}),
    )
    return [_masked(table.topic, row) for row in rows if (row["_topic"], row["_partition"], row["_offset"]) in wanted]


def _masked(topic: str, row: Row) -> Quarantined:
    rules = tuple(row["broken_rules"] or ())
    return Quarantined(
        topic=row["_topic"],
        partition=row["_partition"],
        offset=row["_offset"],
        batch=row["_batch"],
        rules=rules,
        reasons=tuple(mask_detail(rules, row["detail"])),
        key=mask_key(row["key"]) if row["key"] is not None or row["key_size"] is None else f"{row['key_size']:,} bytes",
        fields=tuple(mask_value(topic, row["value"], row["size"])),
    )
