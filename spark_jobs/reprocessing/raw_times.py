"""Bronze records whose time may lie in a range, told from their bytes: most records of other times need no parse."""

import re
from collections.abc import Callable, Iterable
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from expectations.wire_format import MAGIC
from spark_jobs.runtime.times import to_micros


def may_lie_within(name: str, start: datetime, end: datetime, always: Iterable[int] = ()) -> Callable[[pa.Table], pa.Array]:
    """Whether the time of a record, epoch milliseconds in the JSON field `name`, may lie in [start, end). In: `value` and `_offset`.

    False only where the bytes prove that it lies elsewhere, or that there is none: the name is there once, no escape can spell it in
    another way, and after it come digits alone. True of a value that a schema reads, of a deletion, and at the offsets `always`.
    """
    written, first, last = f'"{name}"', -(-to_micros(start) // 1000), (to_micros(end) - 1) // 1000
    number = rf"{re.escape(written)}[ \t\r\n]*:[ \t\r\n]*(?P<millis>[0-9]{{1,18}})[ \t\r\n]*[,}}]"
    places = pa.array(always, pa.int64())

    def is_wanted(records: pa.Table) -> pa.Array:
        values = records["value"]
        millis = pc.struct_field(pc.extract_regex(values, number), "millis").cast("string").cast("int64")
        is_plain = pc.and_(pc.equal(pc.count_substring(values, written), 1), pc.invert(pc.match_substring(values, "\\")))
        is_known = pc.and_(is_plain, pc.invert(pc.starts_with(values, MAGIC)))
        is_elsewhere = pc.and_(is_known, pc.or_(pc.less(millis, first), pc.greater(millis, last)))
        return pc.or_(pc.invert(pc.fill_null(is_elsewhere, False)), pc.is_in(records["_offset"], value_set=places))

    return is_wanted
