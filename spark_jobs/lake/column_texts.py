"""What the columns of the tables mean, in a few words, for the page of tables and the page "Quality".

A name means the same in every table, but where the table's own `texts` say otherwise.
"""

from spark_jobs.lake.table import Table

SHARED = {
    "key": "The record's key, as Kafka has it",
    "value": "The record's value, as Kafka has it",
    "headers": "The record's headers",
    "_topic": "Topic of the record; `NAME#2` after the topic was created again, `file:NAME` for an import",
    "_partition": "Partition of the record",
    "_offset": "Offset of the record",
    "_timestamp": "When the broker took the record; of an import, when it was imported",
    "_batch": "Number of the bronze batch that brought the record",
    "_ingested_at": "When bronze wrote the row; for information only",
    "_ingested_on": "Date of `_ingested_at`",
    "transaction_id": "Id of the transaction",
    "account_id": "Id of the account",
    "customer_id": "Id of the customer",
    "event_at": "Event time of the transaction",
    "event_on": "Date of `event_at`",
    "type": "`Credit` or `Debit`",
    "operation": "Kind of operation; null if the message has none",
    "amount": "Amount of the transaction, zero or more",
    "balance": "Balance of the account after the transaction",
    "is_conflicting": "Whether the row differs from the first row of its id",
    "first_topic": "Topic of the first row of the id",
    "first_partition": "Partition of the first row of the id",
    "first_offset": "Offset of the first row of the id",
    "broken_rules": "Every rule that the record breaks",
    "detail": "What was found, for each broken rule",
    "watermark_at": "Watermark of the row's batch",
    "late_by_seconds": "How far `event_at` lies before the watermark",
    "reason": "Why the row was refused: `invalid`, `late` or `duplicate`",
    "sex": "Sex",
    "social": "Social number",
    "full_name": "First, middle and last name; empty ones left out",
    "phone": "Phone number",
    "email": "Email address",
    "address1": "First line of the address",
    "address2": "Second line of the address",
    "city": "City",
    "state": "State",
    "zipcode": "Postal code",
    "district_id": "Number of the district",
    "birth_date": "Date of birth",
    "frequency": "How often the account gets a statement",
    "creation_date": "When the account was opened",
    "valid_from": "From when on the version is valid",
    "valid_to": "When the next version begins; null if there is none",
    "is_current": "Whether `valid_to` is null",
    "is_deleted": "Whether the version is a deletion; its fields are null",
    "window_start": "Start of the window, included",
    "window_end": "End of the window, not included",
    "transactions": "Number of transactions",
    "credits": "Sum of the amounts of credits",
    "debits": "Sum of the amounts of debits",
    "first_event_at": "Event time of the first transaction",
    "last_event_at": "Event time of the last transaction",
    "day": "Day of the event times",
}


def meaning(table: Table, column: str) -> str:
    """What a column of a table means; empty where nobody has said it, as of tables that are declared in SQL."""
    return table.texts.get(column) or SHARED.get(column, "")
