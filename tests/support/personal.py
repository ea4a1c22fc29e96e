"""A person, and messages full of what nobody may read in a log: valid, malformed, and in the wrong places."""

import json
from datetime import UTC, datetime

from include.producer import Message

PERSON = {
    "fullName": "Zdenka Quarantinova",
    "social": "926-93-2157",
    "phone": "367-171-6840",
    "email": "zdenka.quarantinova@example.org",
    "address1": "387 Wellingtonova Ave.",
    "address2": "Unit 4711B",
}
COLUMNS = ("full_name", "social", "phone", "email", "address1", "address2")  # of silver.customers


def messages(count: int = 15) -> list[Message]:
    """A valid customer and malformed ones, and so many transactions, most of them malformed: the values are in all of them."""
    now = int(datetime.now(UTC).timestamp() * 1000)
    values = " ".join(PERSON.values())
    customer: dict[str, object] = {
        "customerId": "C90000001",
        "sex": "Female",
        "districtId": "1",
        "birthDate": "1990-01-01",
        "updateTime": now,
    }
    customer |= {**PERSON, "city": "Zlin", "state": "ZL", "zipcode": "76001"}
    whole = json.dumps(customer).encode()
    customers = [
        Message("customers", b"C90000001", whole),
        Message("customers", b"C90000002", whole, "malformed:key_matches"),
        Message("customers", values.encode(), whole, "malformed:key_matches"),
        Message(
            "customers", b"C90000001", json.dumps(customer | {"districtId": values, "birthDate": values}).encode(), "malformed:birth_date"
        ),
        Message("customers", b"C90000001", whole[:-1], "malformed:parseable"),
    ]
    plain: dict[str, object] = {"transactionId": "T90000001", "accountId": "A90000001", "customerId": "C90000001", "eventTime": now}
    plain |= {"type": "Credit", "operation": None, "amount": 1, "balance": 1}
    faults: list[dict[str, object]] = [{name: values} for name in plain if name not in ("transactionId", "operation")]
    faults += [{"operation": [values]}, {values: values, "amount": -1}, {"amount": PERSON["phone"]}]
    broken = [json.dumps(plain | fault).encode() for fault in faults] + [values.encode(), b"[" + whole]
    rows = [Message("transactions", values.encode(), broken[number % len(broken)], "malformed:personal") for number in range(count)]
    return [*customers, *rows]
