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

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, functions as F
from pyspark.sql.pandas.functions import arrow_udf

from expectations.wire_format import MAGIC, WireSchema, decode_each

# A number of a million digits took 28 s to read, and the time grows with the square of the length.
_STRICT = {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false", "maxNumLen": "100000"}
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
_NUMBER = r"^(-?)([0-9]+)(?:[.]([0-9]+))?(?:[eE]([+-]?[0-9]+))?$"


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
    schema = ",".join(f"`{name}` variant" for name in names)
    mark = F.hex(F.xxhash64("_text"))
    wrapped = F.concat(F.lit("["), "_text", F.lit(',{"_end":"'), mark, F.lit('"}]'))
    first, last = F.get("_elements", F.lit(0)), F.get("_elements", F.lit(1))
    is_object = (F.size("_elements") == 2) & (last["_end"] == mark) & first.isNotNull()
    ordinary = _ordinary_fields(names, numbers, order)
    return (
        _cut(rows, names, numbers, schemas, order)
        .withColumn("_elements", F.from_json(F.when(~F.col("_is_ordinary"), wrapped), f"array<struct<{schema},_end string>>", _STRICT))
        .withColumn("is_json_object", F.col("_is_ordinary") | F.coalesce(is_object, F.lit(False)))
        .withColumn("_object", F.when(~F.col("_is_ordinary") & F.col("is_json_object"), first))
        .withColumns({f"_kind_{name}": F.schema_of_variant(F.col("_object")[name]) for name in names})
        .withColumns({name: F.when(F.col("_is_ordinary"), ordinary[name]).otherwise(_field(name, name in numbers)) for name in names})
        .drop("_is_ordinary", "_parts", "_elements", "_object", *(f"_kind_{name}" for name in names))
    )


def parse_ordinary(
    rows: DataFrame, texts: Sequence[str], numbers: Sequence[str] = (), schemas: Sequence[WireSchema] = (), order: Sequence[str] = ()
) -> DataFrame:
    """`parse_fields` of values of ordinary shape alone: for all others `is_json_object` is false."""
    names = [*texts, *numbers]
    cut = _cut(rows, names, numbers, schemas, order).withColumnRenamed("_is_ordinary", "is_json_object")
    return cut.withColumns(_ordinary_fields(names, numbers, order)).drop("_parts")


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


def time_of(name: str) -> Column:
    """The time (UTC) of a parsed field of epoch milliseconds; null where it is none, or of no year from 1 to 9999."""
    millis = F.col(f"{name}.text").try_cast("bigint")
    return F.when(millis.between(_FIRST_MILLI, _LAST_MILLI), F.timestamp_millis(millis))


def _cut(rows: DataFrame, names: Sequence[str], numbers: Sequence[str], schemas: Sequence[WireSchema], order: Sequence[str]) -> DataFrame:
    """Add `_text` (null if it is not UTF-8), `_is_ordinary`, and the written fields of a value of ordinary shape: `_parts`."""
    used = order or names
    places = F.lit("".join(f"{_BEFORE}${place}" for place in range(1, len(used) + 1)))
    is_short = F.octet_length("_text") <= _LONGEST_ORDINARY
    is_cut = F.startswith("_text", F.lit("{")) & F.startswith("_cut", F.lit(_BEFORE))
    return (
        rows.withColumn("_text", decoded("value", schemas).cast("string"))
        .withColumn("_cut", F.when(is_short, F.regexp_replace("_text", F.lit(_ordinary(used, numbers)), places)))
        .withColumn("_is_ordinary", F.coalesce(is_cut & ~F.contains("_cut", F.lit(_NOT_UTF8)), F.lit(False)))
        .withColumn("_parts", F.split(F.when(F.col("_is_ordinary"), F.col("_cut")), _BEFORE))
        .withColumn("_text", F.when(F.col("_is_ordinary") | F.is_valid_utf8("_text"), F.col("_text")))
        .drop("_cut")
    )


def _ordinary(order: Sequence[str], numbers: Sequence[str]) -> str:
    """A pattern that matches only JSON objects of these fields in this order, and takes each: nothing in them needs a second thought."""
    pairs = (f'"{re.escape(name)}": ?+{_PLAIN_NUMBER if name in numbers else _PLAIN_TEXT}' for name in order)
    return rf"\A\{{{', ?+'.join(pairs)}\}}\z"


def _ordinary_fields(names: Sequence[str], numbers: Sequence[str], order: Sequence[str]) -> dict[str, Column]:
    """What `_field` makes of the fields of a value of ordinary shape; of one of another shape all is null."""
    used, none = order or names, F.lit(None).cast("string")
    places = {name: F.get("_parts", F.lit(used.index(name) + 1)) if name in used else none for name in names}
    return {name: _ordinary_field(part, is_numeric=name in numbers) for name, part in places.items()}


def _ordinary_field(part: Column, *, is_numeric: bool) -> Column:
    is_null = part == "null"
    kind = F.when(is_null, "null").when(part.isNotNull(), "number" if is_numeric else "string").alias("kind")
    if not is_numeric:
        return F.struct(kind, F.when(~is_null, F.substring(part, F.lit(2), F.length(part) - 2)).alias("text"))
    plain = F.when(part.contains("."), F.rtrim(F.rtrim(part, F.lit("0")), F.lit("."))).otherwise(part)
    text = F.when(~is_null, F.when(plain == "-0", "0").otherwise(plain))
    return F.struct(kind, text.alias("text"), F.lit(0).alias("exponent_digits"))


def _field(name: str, is_numeric: bool) -> Column:
    variant = F.col("_object")[name]
    kind = F.col(f"_kind_{name}")
    word = (
        F.when(kind == "STRING", "string")  # F.lower would load all that it knows of languages: a second of each process
        .when(kind == "BOOLEAN", "boolean")
        .when(kind == "VOID", "null")
        .when(kind.startswith("OBJECT"), "object")
        .when(kind.startswith("ARRAY"), "array")
        .otherwise(F.when(kind.isNotNull(), "number"))
    )
    text = F.try_variant_get(variant, "$", "string")
    if not is_numeric:
        return F.struct(word.alias("kind"), text.alias("text"))
    is_long = F.length("_text") > _LONGEST_WALK
    written = F.transform(F.array(F.when(~is_long, _number_as_written(name))), _plain)[0]  # read once for both of its parts
    return F.when(kind == "DOUBLE", written).otherwise(F.struct(word.alias("kind"), text.alias("text"), F.lit(0).alias("exponent_digits")))


def _number_as_written(name: str) -> Column:
    """The last value of a top-level name, in the text's own words: a walk over the tokens that counts the depth."""

    def step(state: Column, token: Column) -> Column:
        depth = state["depth"] + F.when(token.isin("{", "["), 1).when(token.isin("}", "]"), -1).otherwise(0)
        is_top = state["depth"] == 1
        is_wanted = F.from_json(F.concat(F.lit("["), state["name"], F.lit("]")), "array<string>")[0] == name
        is_value = is_top & ~token.isin("{", "[", "}", "]", ":", ",")
        current = F.when(is_top & (token == ":"), state["previous"]).when(is_top & (token == ","), None).otherwise(state["name"])
        return F.struct(
            depth.alias("depth"),
            current.alias("name"),
            token.alias("previous"),
            F.when(is_value, F.when(is_wanted, token).otherwise(state["found"])).otherwise(state["found"]).alias("found"),
        )

    nothing = F.lit(None).cast("string")
    start = F.struct(F.lit(0).alias("depth"), nothing.alias("name"), nothing.alias("previous"), nothing.alias("found"))
    tokens = F.regexp_extract_all("_text", F.lit(_TOKENS), F.lit(0))
    return F.aggregate(tokens, start, step, lambda state: state["found"])


def _plain(text: Column) -> Column:
    """A field of a JSON number in plain digits without needless zeros; as it was written where that takes more than 40 digits."""
    fraction = F.regexp_extract(text, _NUMBER, 3)
    written_exponent = F.regexp_extract(text, _NUMBER, 4)
    digits = F.ltrim(F.concat(F.regexp_extract(text, _NUMBER, 2), fraction), F.lit("0"))
    held = F.greatest(F.least(written_exponent.try_cast("int"), F.lit(9999)), F.lit(-9999))  # a huge one must not overflow below
    exponent = F.when(written_exponent == "", 0).otherwise(held)
    point = F.length(digits) - F.length(fraction) + exponent  # how many of the digits stand before the decimal point
    padded = F.concat(F.repeat(F.lit("0"), 1 - point), digits, F.repeat(F.lit("0"), point - F.length(digits)))
    whole = F.substring(padded, F.lit(1), F.greatest(point, F.lit(1)))
    decimals = F.rtrim(F.substring(padded, F.greatest(point, F.lit(1)) + 1, F.length(padded)), F.lit("0"))
    plain = F.concat(
        F.when(text.startswith("-"), "-").otherwise(""), whole, F.when(decimals == "", "").otherwise(F.concat(F.lit("."), decimals))
    )
    return F.struct(
        F.lit("number").alias("kind"),
        F.when(F.length(digits) == 0, "0").when(F.abs(point) <= 40, plain).otherwise(text).alias("text"),
        F.when(written_exponent != "", F.length(digits)).otherwise(0).alias("exponent_digits"),
    )
