"""A warehouse for the page "Quality": runs of silver with their verdicts, and rows of quarantine that hold personal data."""

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from spark_jobs.lake import tables
from spark_jobs.lake.tables import Table
from spark_jobs.runtime.settings import Settings

Row = dict[str, Any]

START = datetime(2026, 3, 1, tzinfo=UTC)
TOPICS = ("transactions", "customers", "accounts")
PERSONAL = {
    "fullName": "Zdenka Quarantinova",
    "social": "926-93-2157",
    "phone": "367-171-6840",
    "email": "zdenka.q@example.org",
    "address1": "387 Wellington Ave.",
}


def write(settings: Settings, table: Table, rows: list[Row]) -> None:
    """Append rows in one commit."""
    tables.ensure_tables(settings, [table])
    schema = pa.schema(table.delta_schema().to_arrow())
    write_deltalake(str(table.path(settings)), pa.Table.from_pylist(rows, schema), mode="append")


def run_id(number: int) -> str:
    return f"scheduled__{(START + timedelta(minutes=5 * number)).isoformat()}"


def done_at(number: int) -> datetime:
    return START + timedelta(minutes=5 * number)


def verdict(number: int, table: str, *failed: str) -> Row:
    """The judgement of a table in a run; closed where expectations failed."""
    layer, name = table.split(".")
    return {
        "run_id": run_id(number),
        "layer": layer,
        "table": table,
        "version": number,
        "suite": table,
        "success": not failed,
        "evaluated": 7,
        "failed": len(failed),
        "failed_expectations": list(failed),
        "report": f"file:///a%20home/quality/data_docs/validations/{layer}/{name}/run/{number}.html",
        "_first_batch": number,
        "_last_batch": number,
        "_judged_at": done_at(number) + timedelta(seconds=30),
    }


def batch(number: int, topic: str, quarantined: int = 1) -> Row:
    """What silver did with a topic in a run."""
    counts = {"input": 100, "output": 99 - quarantined, "duplicates": 1, "quarantined": quarantined, "superseded": 0, "no_change": 0}
    return {
        "run_id": run_id(number),
        "job": "silver",
        "table": f"silver.{topic}",
        "first_batch": number,
        "last_batch": number,
        **counts,
        "rules_version": "1",
        "finished_at": done_at(number),
        "_newest_event_at": done_at(number) - timedelta(minutes=2) if topic == "transactions" else None,
    }


def quarantined(number: int, topic: str, offset: int, value: bytes | None, rules: list[str], detail: str | None = None) -> Row:
    place = {"_topic": topic, "_partition": 0, "_offset": offset, "_batch": number}
    return {"key": b"C00000001", "value": value, "broken_rules": rules, "detail": detail, **place}


def late(number: int, seconds: str) -> Row:
    place = {"_topic": "transactions", "_partition": 0, "_offset": number, "_batch": number}
    return {"transaction_id": f"T{number}", "event_at": START, "watermark_at": START, "late_by_seconds": Decimal(seconds), **place}


def decision(number: int, layer: str, choice: str, who: str, why: str, minutes: int = 1) -> Row:
    return {
        "decided_at": done_at(number) + timedelta(minutes=minutes),
        "choice": choice,
        "layer": layer,
        "who": who,
        "why": why,
        "run_id": run_id(number),
        "release_id": 1,
        "generation": 1,
    }


def release(number: int, at: int) -> Row:
    return {"release_id": number, "released_at": done_at(at), "table": "bronze.transactions", "version": 1, "rows": 100, "last_batch": at}


def audited(number: int, table: str, release: int | None = None, *examples: str) -> Row:
    """What an audit found of a table: a row that differs for each example."""
    count = len(examples)
    facts = {"version": number, "rows": 1000, "missing": count, "unexpected": count, "examples": list(examples), "seconds": Decimal("1.5")}
    return {"run_id": f"audit {number}", "release_id": release, "table": table, "audited_at": done_at(number), **facts}


def customer(**fields: Any) -> bytes:
    """A customer's message, full of what nobody may read on a page."""
    return json.dumps({"customerId": "C00000001", **PERSONAL, "districtId": "x", **fields}).encode()


def fill(settings: Settings, runs: int, rows_a_run: int = 1) -> None:
    """Runs 1 to `runs`: every table judged, the last run's customers closed, and rows of quarantine in each."""
    every = [table.name for layer in tables.LAYERS.values() for table in layer]
    names = {number: ("quarantined_rows",) if number == runs else () for number in range(1, runs + 1)}
    numbers = range(1, runs + 1)
    verdicts = [
        verdict(number, name, *(names[number] if name == "silver.customers_quarantine" else ())) for number in numbers for name in every
    ]
    write(settings, tables.QUALITY_RESULTS, verdicts)
    write(settings, tables.BATCHES, [batch(number, topic, rows_a_run) for number in numbers for topic in TOPICS])
    broken = [
        quarantined(number, "customers", number * 1000 + at, customer(), ["district_id_whole"], "district_id_whole: found string x")
        for number in numbers
        for at in range(rows_a_run)
    ]
    write(settings, tables.CUSTOMERS_QUARANTINE, broken)
    write(settings, tables.TRANSACTIONS_LATE, [late(number, "12.500") for number in numbers])
    write(settings, tables.RELEASES, [release(number, number) for number in numbers])
