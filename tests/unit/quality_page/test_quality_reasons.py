"""Why a record is in quarantine: the sentence says what is wrong with the value where it may be seen, and its kind and size where not."""

import pytest

from include.quality_page.masking import mask_value
from include.quality_page.reasons import why


@pytest.mark.parametrize(
    ("rule", "field", "value", "says"),
    [
        ("amount_scale", "amount", "98.901", "amount 98.901 has 3 decimals, at most 2 are allowed"),
        ("amount_scale", "amount", "12345678901234567", "amount 12345678901234567 has 17 digits before the point, at most 16 are allowed"),
        ("balance_scale", "balance", "1e-3", "balance 1e-3 has 3 decimals, at most 2 are allowed"),
        ("amount_not_negative", "amount", "-5", "amount -5 is negative, zero or more is allowed"),
        ("type_known", "type", "credit", "type is credit. Expected: Exactly Credit or Debit."),
        ("account_id_format", "accountId", "A1", "accountId A1 has 1 digit, A and 8 digits are expected"),
        ("customer_id_format", "customerId", "A00000001", "customerId A00000001: C and 8 digits are expected"),
        ("event_time_plausible", "eventTime", "0", "eventTime 0 is 1970-01-01 00:00 UTC, 2000-01-01 or later is expected"),
        ("event_time_plausible", "eventTime", "1.5", "eventTime 1.5 is not a whole number of milliseconds"),
        (
            "event_time_plausible",
            "eventTime",
            "32503680000000",
            "eventTime 32503680000000 is 3000-01-01 00:00 UTC, at most 5 minutes after the record came to Kafka are allowed",
        ),
    ],
)
def test_a_value_that_may_be_seen_is_named(rule: str, field: str, value: str, says: str) -> None:
    reason = why("transactions", rule, "", "T1", {field: value})
    assert (reason.rule, reason.field, reason.says) == (rule, field, says)


@pytest.mark.parametrize("milliseconds", ["-" + "9" * 15, "9" * 15, "-99999999999999", "99999999999999", "-62135596800001", "-1"])
def test_any_number_of_milliseconds_is_answered(milliseconds: str) -> None:
    says = why("transactions", "event_time_plausible", "", "T1", {"eventTime": milliseconds}).says
    assert says.startswith(f"eventTime {milliseconds} is ")
    assert "2000-01-01 or later is expected" in says


@pytest.mark.parametrize("amount", ["9" * 18, "-1e999", "1e-999", "1E+999", "0", "-0.00", "0.10000"])
def test_any_number_is_answered(amount: str) -> None:
    for rule in ("amount_scale", "amount_not_negative"):
        assert amount in why("transactions", rule, "", "T1", {"amount": amount}).says


def test_what_is_masked_is_named_by_kind_and_size() -> None:
    fields = dict(mask_value("transactions", b'{"amount": "Zdenka Quarantinova", "type": ["Zdenka"], "accountId": null}'))
    says = {rule: why("transactions", rule, "", "T1", fields).says for rule in ("amount_scale", "type_known", "account_id_format")}
    assert says["amount_scale"].startswith("amount is a text of 19 characters. Expected: At most 2 decimals")
    assert says["type_known"] == "type is an array of 1 element. Expected: Exactly Credit or Debit."
    assert says["account_id_format"] == "accountId is null. Expected: A and 8 ASCII digits, nothing else."


def test_a_field_that_is_missing_and_a_value_that_is_no_object() -> None:
    missing = why("transactions", "amount_scale", "", "T1", {"type": "Credit"})
    assert (missing.field, missing.says.partition(".")[0]) == ("amount", "amount is missing")
    text = why("transactions", "parseable", "", "T1", {"": "13 bytes, not JSON"})
    assert (text.field, text.says.partition(" Expected")[0]) == ("", "The value is 13 bytes, not JSON.")
    key = why("customers", "key_present", "", "no key", {})
    assert (key.field, key.says.partition(" Expected")[0]) == ("", "There is no key.")


def test_a_rule_of_an_older_version_is_named_by_what_silver_noted() -> None:
    reason = why("transactions", "gone", "gone: found number", "T1", {"amount": "1"})
    assert (reason.field, reason.says) == ("", "gone: found number (a rule of an older version)")
    assert why("nothing", "gone", "gone", "T1", {}).says == "gone (a rule of an older version)"
