"""Which names most values of a topic have, and in which order: the shape that is read in the quicker way."""

import pytest

from spark_jobs.silver.parse import usual_order

NAMES = ("a", "b", "c")
VALUES: dict[str, tuple[list[bytes | None], tuple[str, ...]]] = {
    "no value": ([], NAMES),
    "as declared": ([b'{"a":1,"b":2,"c":3}'], NAMES),
    "in another order": ([b'{"c":1,"a":{"x":[]}}'], ("c", "a")),
    "what most have": ([b'{"a":1}', b'{"b":1,"a":2}', b'{"b":3,"a":4}'], ("b", "a")),
    "a name that nobody knows": ([b'{"a":1,"x":2}'], NAMES),
    "a name twice": ([b'{"a":1,"a":2}'], NAMES),
    "no objects": ([None, b"", b"{}", b"[]", b"[1]", b'["a"]', b"1", b'"a"', b"null", b"{", b"\xff", b'{"a":1} '], ("a",)),
    "nested too deep": ([b"[" * 100_000, b'{"a":' * 100_000], NAMES),
    "a long number": ([b'{"b":' + b"9" * 100_000 + b"}"], NAMES),
}


@pytest.mark.parametrize(("values", "expected"), VALUES.values(), ids=VALUES)
def test_usual_order(values: list[bytes | None], expected: tuple[str, ...]) -> None:
    assert usual_order(values, NAMES) == expected
