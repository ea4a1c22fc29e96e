"""JSON to fields: what is read, what is refused, and every number as it was written."""

import json

import pytest
from pyspark.sql import DataFrame, SparkSession, functions as F

from spark_jobs.lake.topics import BY_TOPIC
from spark_jobs.silver.parse import parse_fields
from spark_jobs.silver.records import parse_records
from tests.support import rows
from tests.support.frames import frame

pytestmark = pytest.mark.spark

# written -> (kind, text, exponent_digits)
NUMBERS: dict[str, tuple[str, str | None, int]] = {
    "0": ("number", "0", 0),
    "-0": ("number", "0", 0),
    "-0.0": ("number", "0", 0),
    "-0e0": ("number", "0", 0),
    "0.1": ("number", "0.1", 0),
    "1.100": ("number", "1.1", 0),
    "100": ("number", "100", 0),
    "100.00": ("number", "100", 0),
    "-12.345": ("number", "-12.345", 0),
    "12345678901234567.89": ("number", "12345678901234567.89", 0),
    "9999999999999999.99": ("number", "9999999999999999.99", 0),
    "1600000000000.0": ("number", "1600000000000", 0),
    "1.6e12": ("number", "1600000000000", 2),
    "1e2": ("number", "100", 1),
    "1E+2": ("number", "100", 1),
    "1.5e-1": ("number", "0.15", 2),
    "-2.50e1": ("number", "-25", 3),
    "0.00e5": ("number", "0", 0),
    "123456789012345e-2": ("number", "1234567890123.45", 15),
    "1234567890123456e-2": ("number", "12345678901234.56", 16),
    "99999999999999.99e0": ("number", "99999999999999.99", 16),
    "1e400": ("number", "1e400", 1),
    "1e-400": ("number", "1e-400", 1),
    "1e2000000000": ("number", "1e2000000000", 1),
    "10e2147483647": ("number", "10e2147483647", 2),
    "0.01e-2147483648": ("number", "0.01e-2147483648", 1),
    "1e99999999999999999999": ("number", "1e99999999999999999999", 1),
    "1" * 41: ("number", "1" * 41, 0),
    f"{'1' * 41}.5": ("number", f"{'1' * 41}.5", 0),
    "0." + "1" * 41: ("number", "0." + "1" * 41, 0),
    '"12"': ("string", "12", 0),
    '"1e2"': ("string", "1e2", 0),
    '""': ("string", "", 0),
    "null": ("null", None, 0),
    "true": ("boolean", "true", 0),
    "{}": ("object", "{}", 0),
    '{"n":1e2}': ("object", '{"n":100.0}', 0),
    "[1e3]": ("array", "[1000.0]", 0),
}

NOT_ONE_OBJECT: dict[str, bytes | None] = {
    "null": None,
    "empty": b"",
    "blank": b" \n",
    "an array": b'[{"n":1}]',
    "an array of nothing": b"[]",
    "a number": b"1",
    "a string": b'"{}"',
    "an empty string": b'""',
    "the word null": b"null",
    "single quotes": b"{'n':1}",
    "no quotes": b"{n:1}",
    "a leading zero": b'{"n":01}',
    "a plus": b'{"n":+1}',
    "no digit before the point": b'{"n":.5}',
    "no digit after the point": b'{"n":5.}',
    "hexadecimal": b'{"n":0x1F}',
    "NaN": b'{"n":NaN}',
    "Infinity": b'{"n":Infinity}',
    "-Infinity": b'{"n":-Infinity}',
    "NaN in an unknown field": b'{"n":1,"other":NaN}',
    "INF": b'{"n":INF}',
    "trailing text": b'{"n":1} x',
    "trailing bracket and text": b'{"n":1}] junk',
    "trailing bracket": b'{"n":1}]',
    "a bracket that reopens": b'{"n":1}],[{"n":2}',
    "two objects": b'{"n":1}{"n":2}',
    "two objects and a comma": b'{"n":1},{"n":2}',
    "an object and the end mark's name": b'{"n":1},{"_end":"0"}',
    "a trailing comma": b'{"n":1,}',
    "a comma after": b'{"n":1},',
    "a comma before": b',{"n":1}',
    "an unclosed object": b'{"n":1',
    "an unclosed string": b'{"n":"1}',
    "a block comment": b'{"n":/* one */1}',
    "a line comment": b'{"n":1} // one',
    "a hash comment": b'{"n":1} # one',
    "a byte order mark": b'\xef\xbb\xbf{"n":1}',
    "bad UTF-8": b'{"n":"\xff"}',
    "an overlong blank": b'{"n":"\xc0\xa0"}',
    "a surrogate in UTF-8": b'{"n":"\xed\xa0\x80"}',
    "UTF-16": '{"n":1}'.encode("utf-16-le"),
    "a raw line end in a string": b'{"n":"a\nb"}',
    "an unknown escape": b'{"n":"\\x41"}',
    "a no-break space around": '\u00a0{"n":1}'.encode(),
    "a form feed around": b'\x0c{"n":1}',
    "a NUL after": b'{"n":1}\x00',
    "2000 deep": b'{"n":1,"deep":' + b"[" * 2000 + b"]" * 2000 + b"}",
    "2000 deep, open": b'{"n":1,"deep":' + b"[" * 2000,
    "10,000 objects deep": b'{"n":' * 10_000 + b"1" + b"}" * 10_000,
    "10,000 arrays deep": b"[" * 10_000 + b"]" * 10_000,
    "1 MB of one letter": b"x" * 1_000_000,
    "1 MB of open objects": b'{"n":' * 200_000,
    "1 MB of quotes": b'"' * 1_000_000,
    "1 MB of backslashes": b'{"n":"' + b"\\" * 1_000_000,
    "1 MB of digits": b'{"n":' + b"9" * 1_000_000 + b"}",
    "1 MB of decimals": b'{"n":0.' + b"9" * 1_000_000 + b"}",
    "an unknown number of 1 MB": b'{"o":' + b"9" * 1_000_000 + b',"n":1}',
}

# value -> (kind, text) of n
OBJECTS: dict[str, tuple[bytes, str | None, str | None]] = {
    "empty": (b"{}", None, None),
    "white space around": (b' \t\r\n{ "n" : 1 }\n ', "number", "1"),
    "another case of the name": (b'{"N":1}', None, None),
    "a repeated name: the last counts": (b'{"n":1,"n":2}', "number", "2"),
    "repeated with an escape": (b'{"n":1e1,"\\u006e":2e1}', "number", "20"),
    "repeated, an escape first": (b'{"\\u006e":1e1,"n":2e1}', "number", "20"),
    "repeated, the last a string": (b'{"n":1e1,"n":"2e1"}', "string", "2e1"),
    "repeated, the first a string": (b'{"n":"1e1","n":2e1}', "number", "20"),
    "repeated, the first an object": (b'{"n":{"n":1e1},"n":2e1}', "number", "20"),
    "repeated, the last null": (b'{"n":1e1,"n":null}', "null", None),
    "the same name deeper, after": (b'{"n":2e1,"o":{"n":3e1},"p":[{"n":4e1},5e1]}', "number", "20"),
    "the same name deeper, before": (b'{"o":{"n":3e1,"p":[[],{}]},"n":2e1}', "number", "20"),
    "the name as a value": (b'{"o":"n","n":2e1,"p":"n"}', "number", "20"),
    "brackets and quotes in strings": (b'{"o":"}]\\"{,:","n":2e1,"p":"\\\\"}', "number", "20"),
    "a repeated unknown name": (b'{"o":1,"o":2,"n":3}', "number", "3"),
    "an unknown field of 1 MB": (b'{"n":1,"o":"' + b"x" * 1_000_000 + b'"}', "number", "1"),
    "200 KB beside an exponent": (b'{"n":1e2,"o":"' + b"x" * 200_000 + b'"}', "number", "100"),
    "200 KB of escapes beside an exponent": (b'{"o":"' + b"\\n" * 100_000 + b'","n":1e2}', "number", "100"),
    "too long to be read again for an exponent": (b'{"o":"' + b"x" * 262_144 + b'","n":1e2}', "number", None),
    "a string of 1 MB": (b'{"n":"' + b"x" * 1_000_000 + b'"}', "string", "x" * 1_000_000),
    "many fields beside an exponent": (
        json.dumps({"n": 0.0, **{f"f{i}": i for i in range(5000)}}).encode()[:-1] + b',"n":1e2}',
        "number",
        "100",
    ),
    "an exponent without spaces": (b'{"n":1e2}', "number", "100"),
    "an exponent with line ends": (b'{\r\n"n"\r\n:\r\n1e2\r\n}', "number", "100"),
    "900 deep": (b'{"n":1,"deep":' + b"[" * 900 + b"]" * 900 + b"}", "number", "1"),
    "a long unknown number": (b'{"n":1,"o":' + b"1" * 10_000 + b"}", "number", "1"),
    "9,000 digits": (b'{"n":' + b"1" * 9000 + b"}", "number", "1" * 9000),
    "9,000 digits in a text": (b'{"n":"' + b"1" * 9000 + b'"}', "string", "1" * 9000),
    "a million digits in a text": (b'{"n":"' + b"1" * 1_000_000 + b'"}', "string", "1" * 1_000_000),
    "100,000 unknown fields": (b"{" + b"".join(b'"f%d":0,' % i for i in range(100_000)) + b'"n":2}', "number", "2"),
    "the end mark's name": (b'{"_end":"0","n":1}', "number", "1"),
    "an empty name": (b'{"":1e1,"n":2e1}', "number", "20"),
    "a NUL in a name": (b'{"n\\u0000":1e1,"n":2e1}', "number", "20"),
}


def parsed(spark: SparkSession, values: list[bytes | None]) -> DataFrame:
    rows = frame(spark, "place int, value binary", enumerate(values))
    return parse_fields(rows, ["s"], ["n"]).orderBy("place")


def test_numbers_keep_their_value_and_what_is_no_number_its_kind(spark: SparkSession) -> None:
    rows = parsed(spark, [b'{"s":"","n":' + written.encode() + b"}" for written in NUMBERS])
    found = rows.select("is_json_object", "n.*").collect()
    assert dict(zip(NUMBERS, map(tuple, found), strict=True)) == {written: (True, *wanted) for written, wanted in NUMBERS.items()}


def test_only_one_json_object_is_parseable(spark: SparkSession) -> None:
    rows = parsed(spark, list(NOT_ONE_OBJECT.values()))
    found = rows.select("is_json_object", "n.kind", "n.text", "s.kind").collect()
    nothing = (False, None, None, None)
    assert {name: tuple(row) for name, row in zip(NOT_ONE_OBJECT, found, strict=True) if tuple(row) != nothing} == {}


def test_objects_are_read_whatever_else_they_hold(spark: SparkSession) -> None:
    rows = parsed(spark, [value for value, _, _ in OBJECTS.values()])
    found = dict(zip(OBJECTS, map(tuple, rows.select("is_json_object", "n.kind", "n.text").collect()), strict=True))
    wanted = {name: (True, kind, text) for name, (_, kind, text) in OBJECTS.items()}
    assert {name: row for name, row in found.items() if row != wanted[name]} == {}


def test_texts_keep_their_content(spark: SparkSession) -> None:
    written = {
        '"plain"': ("string", "plain"),
        '"Zo\\u00eb \\ud83d\\ude00 \\"quoted\\" \\\\ \\/ \\n"': ("string", 'Zoë 😀 "quoted" \\ / \n'),
        '"a line end\\n"': ("string", "a line end\n"),
        '"\\u0000"': ("string", "\x00"),
        '" blanks "': ("string", " blanks "),
        '"2013-01-01"': ("string", "2013-01-01"),
        "null": ("null", None),
        "5": ("number", "5"),
        "false": ("boolean", "false"),
        "[]": ("array", "[]"),
    }
    rows = parsed(spark, [b'{"s":' + text.encode() + b"}" for text in written])
    found = rows.select("s.kind", "s.text").collect()
    assert dict(zip(written, map(tuple, found), strict=True)) == written


def test_no_row_is_dropped_and_its_other_columns_stay(spark: SparkSession) -> None:
    rows = parsed(spark, [b"{}", None, b"{"])
    assert [tuple(row) for row in rows.select("place", F.hex("value")).collect()] == [(0, "7B7D"), (1, None), (2, "7B")]


@pytest.mark.parametrize("written", ["999999999999999999", "-999999999999999999", "253402300800000", "1e400", '"soon"', "null"])
def test_what_is_no_time_is_null_and_ends_no_job(spark: SparkSession, written: str) -> None:
    """A backfill asks rows for their time before it judges them."""
    for topic, name in (("transactions", "eventTime"), ("customers", "updateTime")):
        parsed = parse_records(rows.bronze(spark, topic, [rows.written(topic, name, written)]), BY_TOPIC[topic], ())
        assert [row["_at"] for row in parsed.collect()] == [None]
