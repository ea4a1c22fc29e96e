"""What a topic is: its fields, its key, its time, and whether its records are events or versions. Its tables follow from that."""

import re
from dataclasses import dataclass
from functools import cached_property

from spark_jobs.lake.table import Table

ARRIVAL = ("_batch", "_topic", "_partition", "_offset")  # the order of arrival
COORDINATES = "_topic string, _partition int, _offset bigint, _batch bigint"
COORDINATE_KEYS = ("_topic", "_partition", "_offset")

_CHANGE_FEED = {"delta.enableChangeDataFeed": "true"}
_BRONZE = """key binary, value binary, headers array<struct<key:string,value:binary>>, _topic string, _partition int, _offset bigint,
    _timestamp timestamp, _batch bigint, _ingested_at timestamp, _ingested_on date"""
_VALIDITY = "valid_from timestamp, valid_to timestamp, is_current boolean, is_deleted boolean"


@dataclass(frozen=True)
class Field:
    """A JSON field of a topic, and the column that silver makes of it, which has its name in snake_case.

    `type` is the column's: `string`, `date` (a text yyyy-MM-dd), `int` and `decimal(18,2)` (a number, or a text of digits, by value), or
    `timestamp` (a number of epoch milliseconds). `is_quoted`: what a file has of a number is sent as a JSON string. `empty_is_null`: an
    empty text is null in silver.
    """

    name: str
    type: str = "string"
    is_quoted: bool = False
    empty_is_null: bool = False

    @property
    def column(self) -> str:
        """The name in snake_case."""
        return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", self.name).lower()

    @property
    def is_number(self) -> bool:
        """Whether silver reads it as a number."""
        return self.type not in ("string", "date")


@dataclass(frozen=True)
class Events:
    """Records that come once: the first valid one of a key stays. `time` becomes event_at; `in_words` repeats it as a text."""

    key: str
    time: str
    in_words: str = ""


@dataclass(frozen=True)
class Versions:
    """Records that give the state of a thing from a time on (valid_from); a null value deletes it. `key` is Kafka's key, too."""

    key: str
    time: str


@dataclass(frozen=True)
class Topic:
    """A topic of Kafka. Its rules are in expectations/rules/<name>.yaml."""

    name: str
    fields: tuple[Field, ...]
    kind: Events | Versions
    partitions: int = 1

    @property
    def has_versions(self) -> bool:
        """Whether its records are versions of a thing, not events."""
        return isinstance(self.kind, Versions)

    @property
    def names(self) -> tuple[str, ...]:
        """The JSON names, in their order."""
        return tuple(field.name for field in self.fields)

    @property
    def texts(self) -> tuple[str, ...]:
        """The JSON names of what is read as a text."""
        return tuple(field.name for field in self.fields if not field.is_number)

    @property
    def numbers(self) -> tuple[str, ...]:
        """The JSON names of what is read as a number."""
        return tuple(field.name for field in self.fields if field.is_number)

    @property
    def in_words(self) -> str:
        """The JSON name of the time in words; empty where there is none."""
        return self.kind.in_words if isinstance(self.kind, Events) else ""

    @cached_property
    def key(self) -> str:
        """The column of the key."""
        return next(field.column for field in self.fields if field.name == self.kind.key)

    @cached_property
    def values(self) -> tuple[Field, ...]:
        """The fields that have a column of their own: all but the time, and the time in words."""
        return tuple(field for field in self.fields if field.name not in (self.kind.time, self.in_words))

    @cached_property
    def content(self) -> tuple[str, ...]:
        """The columns by which two records of one key differ."""
        columns = tuple(field.column for field in self.values if field.column != self.key)
        return (*columns, "is_deleted" if self.has_versions else "event_at")

    @cached_property
    def columns(self) -> str:
        """The columns of its silver table in DDL, without the coordinates."""
        pairs = [f"{field.column} {field.type}" for field in self.values]
        if self.has_versions:
            return ", ".join((*pairs, _VALIDITY))
        before = [field.name for field in self.fields if field.name != self.in_words].index(self.kind.time)
        return ", ".join((*pairs[:before], "event_at timestamp", "event_on date", *pairs[before:]))

    @cached_property
    def bronze(self) -> Table:
        """Every record as it came."""
        return Table(
            f"bronze.{self.name}",
            _BRONZE,
            keys=COORDINATE_KEYS,
            partitioned_by=("_ingested_on",),
            time_column="_timestamp",
            topic=self.name,
        )

    @cached_property
    def silver(self) -> Table:
        """The valid events, the first of each key; or the history of all keys."""
        return Table(
            f"silver.{self.name}",
            f"{self.columns}, {COORDINATES}",
            keys=(self.key, "valid_from") if self.has_versions else (self.key,),
            properties=_CHANGE_FEED,
            time_column="valid_from" if self.has_versions else "event_at",
            topic=self.name,
        )

    @cached_property
    def quarantine(self) -> Table:
        """The records that break a rule."""
        return self._beside("quarantine", "key binary, value binary, broken_rules array<string>, detail string")

    @cached_property
    def duplicates(self) -> Table:
        """Of events: the valid ones of a key that came before."""
        first = "first_topic string, first_partition int, first_offset bigint"
        return self._beside("duplicates", f"{self.key} string, is_conflicting boolean, {first}")

    @cached_property
    def late(self) -> Table:
        """Of events: those of the silver table that came after the watermark."""
        columns = f"{self.key} string, event_at timestamp, watermark_at timestamp, late_by_seconds decimal(18,3)"
        return self._beside("late", columns, time_column="event_at")

    @cached_property
    def ids(self) -> Table:
        """Of events: where the row of each key is, so that looking for duplicates reads nothing else that grows."""
        return Table(f"silver.{self.name.removesuffix('s')}_ids", "id_hash bigint, _partition int, _offset bigint", topic=self.name)

    @property
    def valid(self) -> tuple[Table, ...]:
        """The tables that hold its valid rows."""
        return (self.silver,) if self.has_versions else (self.silver, self.duplicates)

    @property
    def released(self) -> tuple[Table, ...]:
        """Its silver tables that gates judge and releases name."""
        return (*self.valid, self.quarantine) if self.has_versions else (*self.valid, self.quarantine, self.late)

    @property
    def indexes(self) -> tuple[Table, ...]:
        """The silver job's own tables, which are made of the others and in no release."""
        return () if self.has_versions else (self.ids,)

    def _beside(self, what: str, columns: str, time_column: str | None = None) -> Table:
        name = f"silver.{self.name}_{what}"
        return Table(name, f"{columns}, {COORDINATES}", keys=COORDINATE_KEYS, time_column=time_column, topic=self.name)
