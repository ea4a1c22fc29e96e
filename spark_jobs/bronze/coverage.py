"""What bronze holds of a partition, and under which batch silver has processed records that bronze holds no more. By delta-rs SQL."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from string import Template

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable
from numpy.typing import NDArray

from spark_jobs import control
from spark_jobs.kafka.offsets import Positions
from spark_jobs.lake.table import Table
from spark_jobs.lake.topics import BY_TOPIC
from spark_jobs.runtime.settings import Settings

Offsets = NDArray[np.int64]

_AMONG = "from t where _topic = '$topic' and _partition = $partition and _offset >= $first and _offset < $end"
_KNOWN = Template("select _partition, max(_offset) as last from t where _topic = '$label' group by _partition")
_COUNT = Template(f"select count(distinct _offset) as n {_AMONG}")
_PLACES = Template(f"select distinct _offset, _batch {_AMONG} order by _offset")
_EDGE = Template(
    "select coalesce(max(_offset) filter (where _timestamp < arrow_cast('$time', '$kind')), -1) + 1 as following, "
    "min(_offset) filter (where _timestamp >= arrow_cast('$time', '$kind')) as since "
    "from t where _topic = '$topic' and _partition = $partition"
)
_MOMENT = 'Timestamp(Microsecond, Some("UTC"))'
_NEAREST = Template(
    "select _offset, _batch from t where _topic = '$topic' and _partition = $partition and _offset $side order by _offset $way limit 1"
)


def known_offsets(settings: Settings, table: Table, label: str) -> Positions:
    """The last offset that bronze holds of each partition of what it calls `label` (`_topic`)."""
    rows = control.query(table.open(settings), _KNOWN.substitute(label=label))
    return {str(row["_partition"]): row["last"] for row in rows.to_pylist()}


class Coverage:
    """What a bronze table holds of one incarnation of its topic (`label`, its `_topic`), and what silver made of it, as they are now.

    A label is made of the name of a topic of this project, so it needs no quoting.
    """

    def __init__(self, settings: Settings, table: Table, label: str) -> None:
        topic = BY_TOPIC[table.topic]
        self._topic = label
        self._bronze = table.open(settings)
        self._silver = [each.open(settings) for each in (*topic.valid, topic.quarantine) if each.exists(settings)]
        self._processed = control.last_batch(settings, "silver", topic.silver.name)
        self._names_every_row = not topic.has_versions

    def count(self, partition: int, first: int, end: int) -> int:
        """How many of the offsets [first, end) bronze holds."""
        return int(self._ask(self._bronze, _COUNT, partition, first=first, end=end)["n"][0].as_py())

    def missing(self, partition: int, first: int, end: int) -> Offsets:
        """The offsets of [first, end) that bronze lacks."""
        if self.count(partition, first, end) == end - first:
            return np.empty(0, np.int64)
        places = self._ask(self._bronze, _PLACES, partition, first=first, end=end)
        return np.setdiff1d(np.arange(first, end), places["_offset"].to_numpy())

    def edge(self, partition: int, time: datetime) -> tuple[int, int | None]:
        """The offset after the last one that bronze holds from before a time, and the first one from then on."""
        found = self._ask(self._bronze, _EDGE, partition, time=time.astimezone(UTC).isoformat(), kind=_MOMENT).to_pylist()[0]
        return found["following"], found["since"]

    def former_batches(self, partition: int, missing: Offsets, skipped: Iterable[range]) -> dict[int, int]:
        """The batch of each of these missing offsets that silver has processed already: silver must not take it again.

        Silver names every event, but of versions only those that it keeps, and refused rows. Of their other records it has
        processed those that lie before a processed one, unless they were never in bronze (`skipped`); these get the batch of the
        one before them, which keeps their place in the order of arrival.
        """
        if not len(missing) or not self._processed:
            return {}
        first, end = int(missing[0]), int(missing[-1]) + 1
        named = self._places(self._silver, partition, first, end)
        if self._names_every_row:
            return {offset: named[offset] for offset in missing.tolist() if offset in named}
        return self._by_neighbours(partition, missing, named | self._places([self._bronze], partition, first, end), skipped)

    def _by_neighbours(self, partition: int, missing: Offsets, known: dict[int, int], skipped: Iterable[range]) -> dict[int, int]:
        before = self._nearest(partition, f"< {missing[0]}", "desc")
        after = self._nearest(partition, f"> {missing[-1]}", "asc")
        offsets = sorted(known.keys() | before.keys() | after.keys())
        batches = [(before | after | known)[offset] for offset in offsets]
        former = {}
        for offset in missing.tolist():
            place = int(np.searchsorted(offsets, offset))
            if offset in known:
                former[offset] = known[offset]
            elif place < len(offsets) and batches[place] <= self._processed and not any(offset in part for part in skipped):
                former[offset] = batches[max(place - 1, 0)]
        return former

    def _nearest(self, partition: int, side: str, way: str) -> dict[int, int]:
        found: dict[int, int] = {}
        for table in (self._bronze, *self._silver):
            found |= _pairs(self._ask(table, _NEAREST, partition, side=side, way=way))
        if not found:
            return {}
        nearest = max(found) if way == "desc" else min(found)
        return {nearest: found[nearest]}

    def _places(self, tables: Iterable[DeltaTable], partition: int, first: int, end: int) -> dict[int, int]:
        found: dict[int, int] = {}
        for table in tables:
            found |= _pairs(self._ask(table, _PLACES, partition, first=first, end=end))
        return found

    def _ask(self, table: DeltaTable, sql: Template, partition: int, **words: object) -> pa.Table:
        return control.query(table, sql.substitute(words, topic=self._topic, partition=partition))


def _pairs(rows: pa.Table) -> dict[int, int]:
    return dict(zip(rows["_offset"].to_pylist(), rows["_batch"].to_pylist(), strict=True))


def runs(offsets: Sequence[int]) -> Iterator[range]:
    """Sorted offsets as ranges without gaps."""
    start = 0
    for place, offset in enumerate(offsets, start=1):
        if place == len(offsets) or offsets[place] != offset + 1:
            yield range(offsets[start], offset + 1)
            start = place
