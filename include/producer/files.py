"""CSV files as records: the bank's by columns of their own, others by the names of the fields. Values go out as they are in the file."""

import csv
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from include.producer.plan import Source
from include.producer.records import ACCOUNTS, BANK, CUSTOMERS, FIRST_VERSION_MS, TOPICS, TRANSACTIONS, Record
from spark_jobs.bronze.imports.texts import fields_of, missing_fields, values_of
from spark_jobs.kafka.messages import NULL, format_time, number, parse_time, quoted, quoted_or_null
from spark_jobs.lake.topics import BY_TOPIC
from spark_jobs.runtime.errors import LedgerError, SettingsError

log = logging.getLogger(__name__)

# The columns that the records of the bank's topics are made of; a file may have more.
COLUMNS: dict[str, tuple[str, ...]] = {
    CUSTOMERS: (
        *("customer_id", "sex", "fulldate", "social", "first", "middle", "last", "phone", "email"),
        *("address_1", "address_2", "city", "state", "zipcode", "district_id"),
    ),
    ACCOUNTS: ("account_id", "district_id", "frequency", "parseddate"),
    TRANSACTIONS: ("trans_id", "account_id", "type", "operation", "amount", "balance", "fulldatewithtime", "customer_id"),
}
_LONGEST_FIELD = 2**24
_WHOLE = re.compile(r"-?[0-9]{1,15}")


def file_sources(folder: Path, only: Sequence[str] | None = None) -> list[Source]:
    """The records of FOLDER/<topic>.csv for the wanted topics, in the order of sending; None: the bank's, and others that have a file.

    Raises SettingsError naming every file that is not there and every column that is missing.
    """
    if only is None:
        only = [topic for topic in TOPICS if topic in BANK or (folder / f"{topic}.csv").exists()]
    wanted = [topic for topic in TOPICS if topic in only]
    wrong = [problem for topic in wanted for problem in _problems(folder / f"{topic}.csv", topic)]
    if wrong:
        raise SettingsError(f"--data {folder}: {'; '.join(wrong)}")
    return [Source(topic, partial(read_records, folder / f"{topic}.csv", topic), _count_rows(folder / f"{topic}.csv")) for topic in wanted]


def read_records(path: Path, topic: str) -> Iterator[Record]:
    """One record a row of the file, in file order; cells that a short row lacks count as empty."""
    uneven = 0
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        csv.field_size_limit(_LONGEST_FIELD)
        rows = csv.reader(file)
        try:
            header = [name.strip() for name in next(rows)]
            to_record = _converter(topic, header)
            for row in rows:
                if len(row) != len(header):
                    if not row:
                        continue  # a blank line
                    uneven += 1
                    row.extend([""] * (len(header) - len(row)))
                yield to_record(row)
        except csv.Error as error:
            raise LedgerError(f"{path} line {rows.line_num} cannot be read as CSV ({error})") from None
    if uneven:
        log.warning("%s: %d rows have not the %d columns of the header; sent as they are", path, uneven, len(header))


def customer(row: Sequence[str]) -> Record:
    """A row with the columns of COLUMNS["customers"] as the customer's first version."""
    customer_id, sex, birth, social, first, middle, last, *contact, district = row
    full_name = " ".join(name for name in (first, middle, last) if name)
    texts = (customer_id, sex, social, full_name, *contact, district)
    return Record(CUSTOMERS, _key(customer_id), (*map(quoted, texts), quoted_or_null(birth), FIRST_VERSION_MS))


def account(row: Sequence[str]) -> Record:
    """A row with the columns of COLUMNS["accounts"] as the account's first version."""
    account_id, district, frequency, created = row
    values = (quoted(account_id), number(district), quoted(frequency), quoted_or_null(created), FIRST_VERSION_MS)
    return Record(ACCOUNTS, _key(account_id), values)


def transaction(row: Sequence[str]) -> Record:
    """A row with the columns of COLUMNS["transactions"]; a time that cannot be read becomes null, its text is kept."""
    transaction_id, account_id, kind, operation, amount, balance, time, customer_id = row
    event_ms = parse_time(time)
    formatted = time if event_ms is None else format_time(event_ms)
    values = (
        *map(quoted, (transaction_id, account_id, customer_id)),
        NULL if event_ms is None else str(event_ms),
        *map(quoted, (formatted, kind, operation)),
        *map(number, (amount, balance)),
    )
    return Record(TRANSACTIONS, _key(transaction_id), values, event_ms)


_TO_RECORD: dict[str, Callable[[Sequence[str]], Record]] = {CUSTOMERS: customer, ACCOUNTS: account, TRANSACTIONS: transaction}


def _converter(topic: str, header: Sequence[str]) -> Callable[[Sequence[str]], Record]:
    """A function from a row of a file to its record."""
    if topic in _TO_RECORD:
        places = [header.index(column) for column in COLUMNS[topic]]
        return lambda row: _TO_RECORD[topic]([row[place] for place in places])
    declared = BY_TOPIC[topic]
    fields = fields_of(declared, header, f"{topic}.csv")
    to_values, key = values_of(declared, fields), fields.index(declared.kind.key)

    def convert(row: Sequence[str]) -> Record:
        values = to_values([cell or None for cell in row])
        time = "" if declared.has_versions else values[declared.kind.time]
        return Record(topic, _key(row[key]), tuple(values.values()), int(time) if _WHOLE.fullmatch(time) else None)

    return convert


def _key(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _problems(path: Path, topic: str) -> list[str]:
    try:
        with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            header = [name.strip() for name in next(csv.reader(file), [])]
    except FileNotFoundError:
        return [f"{path.name} is not there"]
    except (OSError, csv.Error) as error:
        return [f"{path.name} cannot be read ({getattr(error, 'strerror', None) or error})"]
    if topic in COLUMNS:
        missing = [column for column in COLUMNS[topic] if column not in header]
    else:
        try:
            missing = missing_fields(BY_TOPIC[topic], fields_of(BY_TOPIC[topic], header, path.name))
        except SettingsError as error:
            return [str(error)]
    return [f"{path.name} lacks the columns {', '.join(missing)}"] if missing else []


def _count_rows(path: Path) -> int:
    """About how many rows the file has (lines but the header): for the progress bar."""
    with path.open("rb") as file:
        return max(sum(block.count(b"\n") for block in iter(lambda: file.read(2**20), b"")) - 1, 0)
