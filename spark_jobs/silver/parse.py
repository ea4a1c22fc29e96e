"""Bronze bytes to JSON fields: strictly, and with every number kept as it was written.

Spark's readers are lenient (trailing text, single quotes, doubles for decimals), so the text is wrapped in an array whose
second element must come back whole, and fields are read as variants, which keep decimals exact up to 38 digits.
What a variant cannot keep (an exponent, more digits) is read again from the text itself.

Most values have an ordinary shape: fields that are declared, in the order that is usual, texts without escapes, short numbers without
an exponent. A regular expression proves it, and cuts such a value into its fields, with the same outcome
(tests/spark/silver/test_ordinary.py).
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from string import Template

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, functions as F
from pyspark.sql.pandas.functions import arrow_udf

from expectations.wire_format import MAGIC, WireSchema, decode_each
from spark_jobs.runtime.text import spark_text

_LONGEST_NUMBER = 100_000  # one of a million digits took 28 s to read, and the time grows with the square of the length
_LONGEST_WALK = 262_144  # characters; the walk costs some microseconds a token and holds them all in memory
_TOKENS = r'"(?:[^"\\]++|\\.)*+"|[{}\[\]:,]|[^\s{}\[\]:,"]++'
_FIRST_MILLI, _LAST_MILLI = -62_135_596_800_000, 253_402_300_799_999  # of the years 1 and 9999
_LONGEST_ORDINARY = 4096  # bytes
_NOT_UTF8 = "\ufffd"  # what a pattern meets in place of bytes that are not
# Greedy, and each control character by itself: a possessive quantifier, or a range in the class, costs Java a call more for each character.
_CONTROL = "".join(rf"\x{code:02X}" for code in range(32))
_PLAIN_TEXT = rf'("[^"\\{_CONTROL}]*"|null)'
_PLAIN_NUMBER = r"(-?(?:0|[1-9][0-9]{0,17})(?:[.][0-9]{1,6})?+|null)"
_BEFORE = "\x1f"  # each part; in no value of ordinary shape
_NUMBER = "'^(-?)([0-9]+)(?:[.]([0-9]+))?(?:[eE]([+-]?[0-9]+))?$$'"  # in a template
# Expressions are texts: Spark reads one in a call, where PySpark makes one of calls for each of its parts.
_MARK = "hex(xxhash64(_text))"
_ELEMENTS = Template(
    f"""from_json(
        case when not _is_ordinary then concat('[', _text, ',{{"_end":"', {_MARK}, '"}}]') end,
        'array<struct<$fields, _end string>>',
        map('allowSingleQuotes', 'false', 'allowNonNumericNumbers', 'false', 'maxNumLen', '{_LONGEST_NUMBER}')
    )"""
)
_ORDINARY_TEXT = Template(
    """named_struct(
        'kind', case when $part = 'null' then 'null' when $part is not null then 'string' end,
        'text', case when not $part = 'null' then substring($part, 2, length($part) - 2) end
    )"""
)
_PLAIN_PART = "case when contains($part, '.') then trim(trailing '.' from trim(trailing '0' from $part)) else $part end"
_ORDINARY_NUMBER = Template(
    f"""named_struct(
        'kind', case when $part = 'null' then 'null' when $part is not null then 'number' end,
        'text', case when not $part = 'null' then case when {_PLAIN_PART} = '-0' then '0' else {_PLAIN_PART} end end,
        'exponent_digits', 0
    )"""
)
# `lower` would load all that it knows of languages: a second of each process.
_WORD = Template(
    """case
        when $kind = 'STRING' then 'string'
        when $kind = 'BOOLEAN' then 'boolean'
        when $kind = 'VOID' then 'null'
        when startswith($kind, 'OBJECT') then 'object'
        when startswith($kind, 'ARRAY') then 'array'
        when $kind is not null then 'number'
    end"""
)
# The last value of a top-level name, in the text's own words: a walk over the tokens that counts the depth.
_WALK = f"""aggregate(
    regexp_extract_all(_text, {spark_text(_TOKENS)}, 0),
    named_struct('depth', 0, 'name', cast(null as string), 'previous', cast(null as string), 'found', cast(null as string)),
    (state, token) -> named_struct(
        'depth', state.depth + case when token in ('{{', '[') then 1 when token in ('}}', ']') then -1 else 0 end,
        'name', case
            when state.depth = 1 and token = ':' then state.previous
            when state.depth = 1 and token = ',' then null
            else state.name
        end,
        'previous', token,
        'found', case
            when state.depth = 1 and token not in ('{{', '[', '}}', ']', ':', ',')
                and from_json(concat('[', state.name, ']'), 'array<string>')[0] = $name then token
            else state.found
        end
    ),
    state -> state.found
)"""
# A JSON number in plain digits without needless zeros; as it was written where that takes more than 40 digits. Step by step, so that
# each is computed once. `point`: how many of the digits stand before the decimal point. A huge exponent must not overflow.
_WRITTEN = Template(
    f"""transform(transform(transform(transform(
        array(case when not length(_text) > {_LONGEST_WALK} then {_WALK} end),
        text -> named_struct(
            'text', text,
            'fraction', regexp_extract(text, {_NUMBER}, 3),
            'exponent', regexp_extract(text, {_NUMBER}, 4),
            'digits', trim(leading '0' from concat(regexp_extract(text, {_NUMBER}, 2), regexp_extract(text, {_NUMBER}, 3)))
        )),
        n -> named_struct(
            'n', n,
            'point', length(n.digits) - length(n.fraction)
                + case when n.exponent = '' then 0 else greatest(least(try_cast(n.exponent as int), 9999), -9999) end
        )),
        p -> named_struct(
            'n', p.n,
            'point', p.point,
            'padded', concat(repeat('0', 1 - p.point), p.n.digits, repeat('0', p.point - length(p.n.digits)))
        )),
        p -> named_struct(
            'kind', 'number',
            'text', case
                when length(p.n.digits) = 0 then '0'
                when abs(p.point) <= 40 then concat(
                    case when startswith(p.n.text, '-') then '-' else '' end,
                    trim(trailing '.' from concat(
                        substring(p.padded, 1, greatest(p.point, 1)),
                        '.',
                        trim(trailing '0' from substring(p.padded, greatest(p.point, 1) + 1, length(p.padded)))
                    ))
                )
                else p.n.text
            end,
            'exponent_digits', case when p.n.exponent != '' then length(p.n.digits) else 0 end
        )
    )[0]"""
)


def parse_fields(
    rows: DataFrame, texts: Sequence[str], numbers: Sequence[str] = (), schemas: Sequence[WireSchema] = (), order: Sequence[str] = ()
) -> DataFrame:
    """Add a column `is_json_object` and, for each JSON name, a struct column of the same name.

    In: `value` binary; one that names one of the `schemas` is read by it. A value that is not exactly one JSON object by RFC 8259 in
    UTF-8 (null, trailing text, an array, nested too deep for the reader, a number of more than 100,000 characters) gets
    `is_json_object` false and null fields. Of a repeated name the last counts. `order`: which names most values have (`usual_order`).
    Out, per field: kind (`string number boolean null object array`; null where the name is absent) and text (of a string its
    content). Those in `numbers` have a number's text in plain digits, by value (1e2 is 100, 1.100 is 1.1, -0 is 0), and
    exponent_digits: the significant digits of one written with an exponent, else 0. Of a number that needs reading again in a
    value of more than 262,144 characters the text is null, so that it breaks its rule.
    """
    names = [*texts, *numbers]
    is_object = f"size(_elements) = 2 and get(_elements, 1)._end = {_MARK} and get(_elements, 0) is not null"
    ordinary = _ordinary_fields(names, numbers, order)
    fields = {name: f"case when _is_ordinary then {ordinary[name]} else {_field(name, is_numeric=name in numbers)} end" for name in names}
    return (
        _cut(rows, names, numbers, schemas, order)
        .withColumn("_elements", F.expr(_ELEMENTS.substitute(fields=", ".join(f"`{name}` variant" for name in names))))
        .withColumn("is_json_object", F.expr(f"_is_ordinary or coalesce({is_object}, false)"))
        .withColumn("_object", F.expr("case when not _is_ordinary and is_json_object then get(_elements, 0) end"))
        .withColumns({f"_kind_{name}": F.expr(f"schema_of_variant(_object.`{name}`)") for name in names})
        .withColumns({name: F.expr(text) for name, text in fields.items()})
        .drop("_is_ordinary", "_parts", "_elements", "_object", *(f"_kind_{name}" for name in names))
    )


def parse_ordinary(
    rows: DataFrame, texts: Sequence[str], numbers: Sequence[str] = (), schemas: Sequence[WireSchema] = (), order: Sequence[str] = ()
) -> DataFrame:
    """`parse_fields` of values of ordinary shape alone: for all others `is_json_object` is false."""
    names = [*texts, *numbers]
    cut = _cut(rows, names, numbers, schemas, order).withColumnRenamed("_is_ordinary", "is_json_object")
    return cut.withColumns({name: F.expr(text) for name, text in _ordinary_fields(names, numbers, order).items()}).drop("_parts")


def usual_order(values: Iterable[bytes | None], names: Sequence[str]) -> tuple[str, ...]:
    """Which of these names most of some values have, in their order; all, as declared, where no value has but such names, and each once."""
    found = Counter(
        order for value in values if value and (order := _order(value)) and len(set(order)) == len(order) and {*order} <= {*names}
    )
    return found.most_common(1)[0][0] if found else tuple(names)


def _order(value: bytes) -> tuple[str, ...]:
    """The names of a JSON object in their order; none of anything else."""
    try:
        pairs = json.loads(value, object_pairs_hook=tuple)
        return tuple(name for name, _ in pairs) if isinstance(pairs, tuple) else ()
    except (ValueError, RecursionError):
        return ()


def decoded(column: str, schemas: Sequence[WireSchema]) -> Column:
    """Values (binary) as JSON where they name one of the schemas; the others as they are."""
    if not schemas:
        return F.col(column)
    known = tuple(schemas)

    def read_by_schema(values: pa.Array) -> pa.Array:
        if not pc.any(pc.starts_with(values, MAGIC)).as_py():
            return values
        return pa.array(decode_each(values.to_pylist(), known), values.type)

    read: Column = arrow_udf(read_by_schema, "binary")(F.col(column))  # type: ignore[call-overload]
    return read


def time_of(name: str) -> str:
    """The time (UTC) of a parsed field of epoch milliseconds, in SQL; null where it is none, or of no year from 1 to 9999."""
    millis = f"try_cast(`{name}`.text as bigint)"
    return f"case when {millis} between {_FIRST_MILLI} and {_LAST_MILLI} then timestamp_millis({millis}) end"


def _cut(rows: DataFrame, names: Sequence[str], numbers: Sequence[str], schemas: Sequence[WireSchema], order: Sequence[str]) -> DataFrame:
    """Add `_text` (null if it is not UTF-8), `_is_ordinary`, and the written fields of a value of ordinary shape: `_parts`."""
    used = order or names
    places = "".join(f"{_BEFORE}${place}" for place in range(1, len(used) + 1))
    cut = f"regexp_replace(_text, {spark_text(_ordinary(used, numbers))}, '{places}')"
    is_cut = f"startswith(_text, '{{') and startswith(_cut, '{_BEFORE}') and not contains(_cut, '{_NOT_UTF8}')"
    return (
        rows.withColumn("_text", decoded("value", schemas).cast("string"))
        .withColumn("_cut", F.expr(f"case when octet_length(_text) <= {_LONGEST_ORDINARY} then {cut} end"))
        .withColumn("_is_ordinary", F.expr(f"coalesce({is_cut}, false)"))
        .withColumn("_parts", F.expr(f"split(case when _is_ordinary then _cut end, '{_BEFORE}')"))
        .withColumn("_text", F.expr("case when _is_ordinary or is_valid_utf8(_text) then _text end"))
        .drop("_cut")
    )


def _ordinary(order: Sequence[str], numbers: Sequence[str]) -> str:
    """A pattern that matches only JSON objects of these fields in this order, and takes each: nothing in them needs a second thought."""
    pairs = (f'"{re.escape(name)}": ?+{_PLAIN_NUMBER if name in numbers else _PLAIN_TEXT}' for name in order)
    return rf"\A\{{{', ?+'.join(pairs)}\}}\z"


def _ordinary_fields(names: Sequence[str], numbers: Sequence[str], order: Sequence[str]) -> dict[str, str]:
    """What `_field` makes of the fields of a value of ordinary shape; of one of another shape all is null."""
    used = order or names
    parts = {name: f"get(_parts, {used.index(name) + 1})" if name in used else "cast(null as string)" for name in names}
    return {name: (_ORDINARY_NUMBER if name in numbers else _ORDINARY_TEXT).substitute(part=part) for name, part in parts.items()}


def _field(name: str, *, is_numeric: bool) -> str:
    words = {"kind": f"`_kind_{name}`", "variant": f"_object.`{name}`", "name": spark_text(name)}
    found = Template("named_struct('kind', $word, 'text', try_variant_get($variant, '$$', 'string')$more)")
    text = found.substitute(words, word=_WORD.substitute(words), more=", 'exponent_digits', 0" if is_numeric else "")
    return f"case when {words['kind']} = 'DOUBLE' then {_WRITTEN.substitute(words)} else {text} end" if is_numeric else text
