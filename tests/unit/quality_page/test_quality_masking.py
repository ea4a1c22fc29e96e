"""What of a quarantined record may be seen, whatever its bytes are."""

import re
from typing import Any

import pytest

from include.quality_page.masking import mask_detail, mask_key, mask_value
from tests.support import quality_rows as rows


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, [("", "no value")]),
        (b"", [("", "0 bytes, not JSON")]),
        (b"\0\0\0\0\7" + b'{"a": 1}', [("", "the header of a schema registry (schema 7) before 8 bytes of JSON")]),
        (
            b"\0\0\1\0\7\x08Jan",
            [("", "the header of a schema registry (schema 65543) before 4 bytes that are not JSON, as of Avro or Protobuf")],
        ),
        (b"\0\0\0\0\7", [("", "5 bytes, not JSON")]),
        (b"\xff\xfeJan", [("", "5 bytes, not UTF-8")]),
        (b"Jan Novak", [("", "9 bytes, not JSON")]),
        (b'{"amount": NaN}', [("", "15 bytes, not JSON")]),
        (b'["Jan"]', [("", "not an object: array of 1 element")]),
        (b'"Jan"', [("", "not an object: text of 3 characters")]),
        (b"[" * 50_000, [("", "50,000 bytes, nested too deep")]),
        (b"9" * 70_000, [("", "70,000 bytes, too many to be shown")]),
        (b'{"amount": ' + b"9" * 6000 + b"}", [("amount", "number of 6,000 characters")]),
        (b'{"amount": 1e2, "balance": "1.00"}', [("amount", "1e2"), ("balance", "text of 4 characters")]),
        (b'{"type": "credit", "operation": "Jan"}', [("type", "credit"), ("operation", "text of 3 characters")]),
        (b'{"transactionId": "T1\\n", "accountId": "A00000001"}', [("transactionId", "text of 3 characters"), ("accountId", "A00000001")]),
        (b'{"amount": 1, "amount": "Jan"}', [("amount", "text of 3 characters")]),
        (
            b'{"person": {"name": "Jan"}, "a": [1], "b": null, "c": true}',
            [("person", "object of 1 field"), ("a", "array of 1 element"), ("b", "null"), ("c", "true or false")],
        ),
        (
            b'{"Jan Novak": 1, "\\ud800": 2}',
            [("(a name of 9 characters)", "number of 1 character"), ("(a name of 1 character)", "number of 1 character")],
        ),
    ],
    ids=repr,
)
def test_masked_values_of_transactions(value: bytes | None, expected: list[tuple[str, str]]) -> None:
    assert mask_value("transactions", value) == expected


def test_of_customers_no_content_is_shown() -> None:
    masked = dict(mask_value("customers", rows.customer(updateTime=1, birthDate="1990-01-01")))
    assert set(masked) == {"customerId", *rows.PERSONAL, "districtId", "updateTime", "birthDate"}
    assert all(re.fullmatch("(text|number) of [0-9,]+ characters?", text) for text in masked.values()), masked


def test_many_fields_are_not_all_shown() -> None:
    masked: list[tuple[str, Any]] = mask_value("transactions", str({f"f{n}": n for n in range(1000)}).replace("'", '"').encode())
    assert (len(masked), masked[-1]) == (41, ("", "960 more fields"))


@pytest.mark.parametrize(
    ("key", "expected"), [(None, "no key"), (b"C00000001", "C00000001"), (b"Jan", "3 bytes"), (b"C1\n", "3 bytes"), (b"\xff", "1 bytes")]
)
def test_masked_keys(key: bytes | None, expected: str) -> None:
    assert mask_key(key) == expected


def test_masked_details() -> None:
    detail = "a: found string Jan; b: found number; b: found nothing; c: found no key; unknown fields: x"
    assert mask_detail(["a", "b", "c", "d"], detail) == ["a: found string", "b: found number", "c: found no key", "d"]
    assert mask_detail(["parseable"], "parseable: found 12 bytes of value") == ["parseable: found 12 bytes of value"]
    assert mask_detail(["x"], None) == ["x"]
