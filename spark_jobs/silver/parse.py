"""Bronze bytes to JSON fields: strictly, and with every number kept as it was written.

Spark's readers are lenient (trailing text, single quotes, doubles for decimals), so the text is wrapped in an array whose
second element must come back whole, and fields are read as variants, which keep decimals exact up to 38 digits.
What a variant cannot keep (an exponent, more digits) is read again from the text itself.

Most values have an ordinary shape: the fields that are declared, texts without escapes, short numbers without an exponent. A regular
expression proves it, and such a value is read in a quicker way, with the same outcome (tests/spark/silver/test_ordinary.py).
"""

import re
from collections.abc import Sequence

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
_LONGEST_ORDINARY, _MOST_FIELDS = 4096, 64  # bytes; pairs of name and value
_PLAIN_TEXT, _PLAIN_NUMBER = r'(?:"[^"\\\x00-\x1F]*+"|null)', r"(?:-?(?:0|[1-9][0-9]{0,17})(?:[.][0-9]{1,6})?+|null)"
_NUMBER = r"^(-?)([0-9]+)(?:[.]([0-9]+))?(?:[eE]([+-]?[0-9]+))?$"


def parse_fields(rows: DataFrame, texts: Sequence[str], numbers: Sequence[str] = (), schemas: Sequence[WireSchema] = ()) -> DataFrame:
    """Add a column `is_json_object` and, for each JSON name, a struct column of the same name.

    In: `value` binary; one that names one of the `schemas` is read by it. A value that is not exactly one JSON object by RFC 8259 in
    UTF-8 (null, trailing text, an array, nested too deep for the reader, a number of more than 100,000 characters) gets
    `is_json_object` false and null fields. Of a repeated name the last counts.
    Out, per field: kind (`string number boolean null object array`; null where the name is absent) and text (of a string its
    content). Those in `numbers` have a number's text in plain digits, by value (1e2 is 100, 1.100 is 1.1, -0 is 0), and
    exponent_digits: the significant digits of one written with an exponent, else 0. Of a number that needs reading again in a
    value of more than 262,144 characters the text is null, so that it breaks its rule.
    """
    names = [*texts, *numbers]
    schema = ",".join(f"`{name}` variant" for name in names)
    plain = [f"`{name}` {'string' if name in texts else 'decimal(38,6)'}" for name in names]
    mark = F.hex(F.xxhash64("_text"))
    wrapped = F.concat(F.lit("["), "_text", F.lit(',{"_end":"'), mark, F.lit('"}]'))
    first, last = F.get("_elements", F.lit(0)), F.get("_elements", F.lit(1))
    is_ordinary = (F.octet_length("_text") <= _LONGEST_ORDINARY) & F.col("_text").rlike(_ordinary(texts, numbers))
    is_object = (F.size("_elements") == 2) & (last["_end"] == mark) & first.isNotNull()
    return (
        rows.withColumn("_text", decoded("value", schemas).cast("string"))
        .withColumn("_text", F.when(F.is_valid_utf8("_text"), F.col("_text")))
        .withColumn("_is_ordinary", F.coalesce(is_ordinary, F.lit(False)))
        .withColumn("_plain", F.from_json(F.when(F.col("_is_ordinary"), F.col("_text")), ",".join(plain)))
        .withColumn("_elements", F.from_json(F.when(~F.col("_is_ordinary"), wrapped), f"array<struct<{schema},_end string>>", _STRICT))
        .withColumn("is_json_object", F.col("_is_ordinary") | F.coalesce(is_object, F.lit(False)))
        .withColumn("_object", F.when(~F.col("_is_ordinary") & F.col("is_json_object"), first))
        .withColumns({f"_kind_{name}": F.schema_of_variant(F.col("_object")[name]) for name in names})
        .withColumns(
            {
                name: F.when(F.col("_is_ordinary"), _ordinary_field(name, name in numbers)).otherwise(_field(name, name in numbers))
                for name in names
            }
        )
        .drop("_is_ordinary", "_plain", "_elements", "_object", *(f"_kind_{name}" for name in names))
    )


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


def _ordinary(texts: Sequence[str], numbers: Sequence[str]) -> str:
    """A pattern that matches only JSON objects of these fields and no others: nothing in them needs a second thought."""
    kinds = ((texts, _PLAIN_TEXT), (numbers, _PLAIN_NUMBER))
    pair = "|".join(f'"(?:{"|".join(map(re.escape, names))})": ?{value}' for names, value in kinds if names)
    return rf"\A\{{(?:{pair})(?:, ?(?:{pair})){{0,{_MOST_FIELDS}}}+\}}\z"


def _ordinary_field(name: str, is_numeric: bool) -> Column:
    """What `_field` makes of it. No text of such a value holds a quote, so the name with its quotes and colon is nothing else."""
    text = F.col("_plain")[name]
    kind = F.when(text.isNotNull(), "number" if is_numeric else "string").when(F.col("_text").contains(f'"{name}":'), "null")
    if not is_numeric:
        return F.struct(kind.alias("kind"), text.alias("text"))
    digits = F.rtrim(F.rtrim(text.cast("string"), F.lit("0")), F.lit("."))  # of a decimal, which has all its decimals
    return F.struct(kind.alias("kind"), digits.alias("text"), F.lit(0).alias("exponent_digits"))


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
    inexact = F.when((kind == "DOUBLE") & (F.length("_text") <= _LONGEST_WALK), F.transform(F.array(_number_as_written(name)), _plain)[0])
    return F.struct(
        word.alias("kind"),
        F.when(kind == "DOUBLE", inexact["text"]).otherwise(text).alias("text"),
        F.coalesce(inexact["exponent_digits"], F.lit(0)).alias("exponent_digits"),
    )


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
    """A JSON number in plain digits without needless zeros; as it was written where that takes more than 40 digits."""
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
        F.when(F.length(digits) == 0, "0").when(F.abs(point) <= 40, plain).otherwise(text).alias("text"),
        F.when(written_exponent == "", 0).otherwise(F.length(digits)).alias("exponent_digits"),
    )
