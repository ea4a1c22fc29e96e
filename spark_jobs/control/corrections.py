"""Corrections: values that operators give in place of those from Kafka, an append-only table with who and why.

A correction takes effect only through a re-drive. Bronze keeps the original bytes.
"""

import base64
import binascii
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from string import Template
from typing import Any

from pyspark.sql import DataFrame, SparkSession, functions as F

from spark_jobs import control
from spark_jobs.lake.tables import CORRECTIONS, REDRIVES, Table
from spark_jobs.runtime import one_line
from spark_jobs.runtime.errors import SettingsError
from spark_jobs.runtime.settings import Settings

Place = tuple[str, int, int]  # topic, partition, offset

FIELDS = {"topic", "partition", "offset", "value", "value_base64", "who", "why"}
PLACE = ["_topic", "_partition", "_offset"]
PLACE_DDL = "_topic string, _partition int, _offset bigint"
_CORRECTED = f"{PLACE_DDL}, _corrected binary"
_BETWEEN = Template("select _topic, _partition, _offset from t where _offset between $first and $last")
_AT = Template("select _topic, _batch from t where _partition = $partition and _offset = $offset")
_LISTED = 5  # how many problems a message lists


@dataclass(frozen=True)
class Correction:
    """The value that is to be judged in place of a Kafka record's own; who says so, and why."""

    place: Place
    value: bytes
    who: str
    why: str


def read_file(file: Path) -> list[Correction]:
    """The corrections of a file of JSON lines: topic, partition, offset, value (text) or value_base64, who, why.

    Blank lines are skipped. Raises SettingsError, which lists the first problems, when any line cannot be used, two lines
    speak of one record, or there is no line. No message repeats a value.
    """
    try:
        lines = file.read_text(encoding="utf-8").split("\n")
    except (OSError, ValueError) as error:
        raise SettingsError(f"{file}: cannot be read ({error}), expected JSON lines in UTF-8") from None
    found: dict[Place, Correction] = {}
    problems: list[str] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            correction = _parse(line)
        except ValueError as error:
            problems.append(f"line {number}: {error}")
            continue
        if correction.place in found:
            problems.append(f"line {number}: found {_name(correction.place)} twice, expected one line a record")
        found[correction.place] = correction
    _refuse(file, problems[:_LISTED], len(problems))
    if not found:
        raise SettingsError(f"{file}: found no line, expected at least one correction")
    return list(found.values())


def refuse_unusable(
    settings: Settings, file: Path, corrections: Iterable[Correction], topics: Iterable[tuple[Table, Table, Table]]
) -> None:
    """Raise SettingsError unless every correction is of a record in quarantine, or was given before just so.

    `topics` are the bronze, silver and quarantine tables that are looked at.
    """
    topics = list(topics)
    known = newest(settings)
    unknown = [each for each in corrections if each != known.get(each.place)]
    if not unknown:
        return
    offsets = [each.place[2] for each in unknown]
    sql = _BETWEEN.substitute(first=min(offsets), last=max(offsets))
    places = {_place(row) for _, _, quarantine in topics for row in _rows(settings, quarantine, sql)}
    missing = [each.place for each in unknown if each.place not in places]
    names = ", ".join(quarantine.name for _, _, quarantine in topics)
    listed = [f"{_name(place)} is {_where(settings, place, topics)}, expected it in {names}" for place in missing[:_LISTED]]
    _refuse(file, listed, len(missing))


def append(settings: Settings, corrections: Iterable[Correction], now: datetime) -> int:
    """Append the corrections that are not the newest of their records already; returns how many these were.

    Their time is after that of all corrections before, whatever the clock says.
    """
    known = newest(settings)
    at = later_than_all(settings, now)
    new = [each for each in corrections if each != known.get(each.place)]
    rows = [
        dict(zip(PLACE, each.place, strict=True)) | {"value": each.value, "who": each.who, "why": each.why, "corrected_at": at}
        for each in new
    ]
    if rows:
        control.append(settings, CORRECTIONS, rows)
    return len(rows)


def later_than_all(settings: Settings, now: datetime) -> datetime:
    """Now, or just after the newest correction if the clock has been set back."""
    return control.later_than(control.read(settings, CORRECTIONS)["corrected_at"].to_pylist(), now)


def newest(settings: Settings) -> dict[Place, Correction]:
    """The newest correction of each record that has one."""
    rows = sorted(control.read(settings, CORRECTIONS).to_pylist(), key=lambda row: row["corrected_at"])
    return {_place(row): Correction(_place(row), row["value"], row["who"], row["why"]) for row in rows}


def in_effect(settings: Settings, table: Table) -> dict[Place, bytes]:
    """The corrected values of a table's records that were judged good by them: of each, the newest when it was judged."""
    corrections = sorted(control.read(settings, CORRECTIONS).to_pylist(), key=lambda row: row["corrected_at"])
    values: dict[Place, list[tuple[datetime, bytes]]] = {}
    for row in corrections:
        values.setdefault(_place(row), []).append((row["corrected_at"], row["value"]))
    return {
        place: next(value for at, value in reversed(values[place]) if at <= row["redriven_at"])
        for place, row in last_redrives(settings, table).items()
        if row["is_corrected"] and row["outcome"] != "quarantine"
    }


def last_redrives(settings: Settings, table: Table) -> dict[Place, dict[str, Any]]:
    """What the last re-drive made of each record of a table that was ever judged again."""
    rows = (row for row in control.read(settings, REDRIVES).to_pylist() if row["table"] == table.name)
    return {_place(row): row for row in sorted(rows, key=lambda row: row["redriven_at"])}


def correct(bronze: DataFrame, values: dict[Place, bytes], spark: SparkSession) -> DataFrame:
    """Bronze rows with these values in place of their own; the other rows as they are."""
    if not values:
        return bronze
    frame = spark.createDataFrame([(*place, value) for place, value in values.items()], _CORRECTED)
    joined = bronze.join(frame, on=PLACE, how="left")
    return joined.withColumn("value", F.coalesce("_corrected", "value")).select(*bronze.columns)


def _refuse(file: Path, listed: list[str], count: int) -> None:
    """Raise SettingsError, which lists some problems, if there are any."""
    if count:
        more = f"; and {count - len(listed)} more" if count > len(listed) else ""
        raise SettingsError(f"{file}: {'; '.join(listed)}{more}; nothing was written")


def _parse(line: str) -> Correction:
    """One line; raises ValueError that says what is wrong with it."""
    try:
        fields = json.loads(line, object_pairs_hook=_once)
    except RecursionError:
        raise ValueError("found a value nested too deep, expected one JSON object") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"is no JSON ({error.msg} at column {error.colno})") from None
    if not isinstance(fields, dict):
        raise ValueError("found no JSON object, expected one")
    if unknown := sorted(fields.keys() - FIELDS):
        raise ValueError(f"found field {unknown[0][:40]!r}, expected only {', '.join(sorted(FIELDS))}")
    for name in ("topic", "who", "why"):
        if wrong := one_line.problem(fields.get(name)):
            raise ValueError(f"{name}: {wrong}")
    for name, most in (("partition", 2**31), ("offset", 2**63)):
        if type(fields.get(name)) is not int or not 0 <= fields[name] < most:
            raise ValueError(f"found no usable {name}, expected a whole number >= 0")
    return Correction((fields["topic"], fields["partition"], fields["offset"]), _value(fields), fields["who"], fields["why"])


def _value(fields: dict[str, Any]) -> bytes:
    given = [name for name in ("value", "value_base64") if name in fields]
    if len(given) != 1 or not isinstance(fields[given[0]], str):
        raise ValueError("found no value, expected value (a text) or value_base64, one of them")
    try:
        return bytes(fields["value"], "utf-8") if "value" in fields else base64.b64decode(fields["value_base64"], validate=True)
    except (UnicodeEncodeError, binascii.Error):
        raise ValueError(f"{given[0]} cannot be read, expected {'Unicode text' if 'value' in fields else 'Base64'}") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("found a field twice, expected each once")
    return fields


def _where(settings: Settings, place: Place, topics: list[tuple[Table, Table, Table]]) -> str:
    """What is known of a record that is not in quarantine."""
    topic, partition, offset = place
    sql = _AT.substitute(partition=partition, offset=offset)
    for bronze, silver, _ in topics:
        for row in _rows(settings, bronze, sql):
            if row["_topic"] == topic:
                return "valid already" if row["_batch"] <= control.last_batch(settings, "silver", silver.name) else "not judged yet"
    return "not in bronze"


def _rows(settings: Settings, table: Table, sql: str) -> Iterator[dict[str, Any]]:
    if table.exists(settings):
        yield from control.query(table.open(settings), sql).to_pylist()


def _place(row: dict[str, Any]) -> Place:
    return row["_topic"], row["_partition"], row["_offset"]


def _name(place: Place) -> str:
    return "/".join(map(str, place))
