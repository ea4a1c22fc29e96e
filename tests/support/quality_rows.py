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


def release(number: int, at: int, table: str = "bronze.transactions", count: int = 100) -> Row:
    last_batch = at if table.startswith("bronze.") else None
    facts = {"table": table, "version": at, "rows": count, "last_batch": last_batch}
    return {"release_id": number, "released_at": done_at(at) + timedelta(minutes=1), **facts}


def bronze(number: int, offset: int, value: bytes = b"{}") -> Row:
    """A record of transactions that came with a batch."""
    at = {"_timestamp": done_at(number), "_ingested_at": done_at(number), "_ingested_on": done_at(number).date()}
    place = {"_topic": "transactions", "_partition": 0, "_offset": offset, "_batch": number}
    return {"key": b"T1", "value": value, "headers": None, **place, **at}


def judged(settings: Settings, number: int, table: str, most: int = 0, **found: int) -> None:
    """Keep what Great Expectations keeps of a verdict, beside its report: what was found of each expectation, passed or not."""
    page = str(verdict(number, table)["report"]).partition("/data_docs/validations/")[2]
    file = settings.quality / "gx/validations" / page.replace(".html", ".json")
    file.parent.mkdir(parents=True, exist_ok=True)
    results = [
        {
            "success": value <= most,
            "result": {"observed_value": value},
            "expectation_config": {
                "kwargs": {"column": name, "max_value": float(most)},
                "severity": "critical",
                "description": f"{f'At most {most}' if most else 'No'} {name.replace('_', ' ')}.",
            },
        }
        for name, value in found.items()
    ]
    file.write_text(json.dumps({"results": results}))


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
    write(settings, tables.RELEASES, [release(number, number, name, 100 * number) for number in numbers for name in every])
    write(settings, tables.BRONZE_TRANSACTIONS, [bronze(runs + 1, runs * 1000 + at) for at in range(rows_a_run)])


def transaction(**fields: Any) -> bytes:
    """A transaction's message, valid but for what is given."""
    valid = {"transactionId": "T1", "accountId": "A00000001", "customerId": "C00000001", "eventTime": 1_600_000_000_000, "type": "Credit"}
    return json.dumps({**valid, "operation": "Card", "amount": 1.5, "balance": 2.5, **fields}).encode()


BROKEN = (  # how often of 8, the value, the rules, what silver notes
    (4, transaction(amount=98.901), ["amount_scale"], "amount_scale: found number 98.901"),
    (2, transaction(type="credit", amount=-5), ["type_known", "amount_not_negative"], "type_known: found string credit"),
    (1, transaction(accountId=PERSONAL["fullName"]), ["account_id_format"], f"account_id_format: found string {PERSONAL['fullName']}"),
    (1, b"{" + PERSONAL["phone"].encode(), ["parseable"], "parseable: found 13 bytes of value"),
)


def close_gate(settings: Settings, number: int, hundreds: int = 1) -> None:
    """A run of which 8 of 10 transactions are in quarantine, for which silver's gate is closed."""
    counts = {"input": 1000, "output": 150, "duplicates": 50, "quarantined": 800}
    counts = {name: count * hundreds // 10 for name, count in counts.items()}
    write(settings, tables.BATCHES, [batch(number, "transactions") | counts])
    failed = verdict(number, "silver.transactions", "quarantined_per_thousand")
    write(settings, tables.QUALITY_RESULTS, [failed | {"_found": ["800"], "_expected": ["at most 500"]}])
    values = [(value, rules, detail) for times, value, rules, detail in BROKEN for _ in range(times * 10 * hundreds)]
    rows = [quarantined(number, "transactions", at, *broken) for at, broken in enumerate(values)]
    write(settings, tables.TRANSACTIONS_QUARANTINE, rows)
    write(settings, tables.BRONZE_TRANSACTIONS, [bronze(number, at, value) for at, (value, _, _) in enumerate(values)])
