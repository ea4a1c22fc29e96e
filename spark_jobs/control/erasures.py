"""Erasures of persons: the plan of one that is under way, and what is on record of all of them in control.erasures.

A plan names the person, who alone can be searched for by it. It is a private file below the checkpoints, and goes when the erasure ends.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path

from spark_jobs import control
from spark_jobs.lake.tables import ERASURES
from spark_jobs.lake.txn import Txn
from spark_jobs.runtime.atomic_files import write_whole
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.settings import Settings

Place = tuple[str, int, int]  # _topic, partition, offset


@dataclass(frozen=True)
class Plan:
    """An erasure: the coordinates that are emptied, by topic, and what the search looks for.

    `values` say something of the person; `ids` are those of the person's transactions. `is_erased`: only the search is left.
    """

    id: str
    customer: str
    who: str
    why: str
    places: dict[str, list[Place]]
    values: list[str]
    ids: list[str]
    is_erased: bool = False

    @property
    def customer_hash(self) -> str:
        """By which control.erasures knows the person: SHA-256 of the erasure's id and the customer's."""
        return hashlib.sha256(f"{self.id}{self.customer}".encode()).hexdigest()


def file_of(settings: Settings) -> Path:
    """Where the plan of an erasure lies while it is under way."""
    return settings.checkpoints / "erasure.json"


def unfinished(settings: Settings) -> Plan | None:
    """The erasure that is under way, or whose process died."""
    try:
        facts = json.loads(file_of(settings).read_text())
    except FileNotFoundError:
        return None
    places = {topic: [(str(name), int(number), int(offset)) for name, number, offset in found] for topic, found in facts["places"].items()}
    return Plan(**(facts | {"places": places}))


def refuse_unfinished(settings: Settings) -> None:
    """Raise LedgerError while bronze is emptied of a person and the other tables are not."""
    if (plan := unfinished(settings)) and not plan.is_erased:
        raise LedgerError(
            f"an erasure by {plan.who} stopped halfway: found {file_of(settings)}, expected none: run forget again with the same --customer"
        )


def save(settings: Settings, plan: Plan) -> None:
    """Keep a plan until it is done."""
    write_whole(file_of(settings), json.dumps(asdict(plan)))


def save_erased(settings: Settings, plan: Plan) -> None:
    """Keep that all is erased, and only the search is left."""
    save(settings, replace(plan, is_erased=True))


def record(settings: Settings, plan: Plan, now: datetime) -> None:
    """Append the coordinates of an erasure, once."""
    common = {"erasure_id": plan.id, "customer_hash": plan.customer_hash, "who": plan.who, "why": plan.why, "erased_at": now}
    rows = [
        common | dict(zip(("_topic", "_partition", "_offset"), place, strict=True)) for found in plan.places.values() for place in found
    ]
    control.append(settings, ERASURES, rows, once=Txn(f"erasure {plan.id}", 1))


def record_found(settings: Settings, plan: Plan, found: str, now: datetime) -> None:
    """Append what the search found."""
    row = {"erasure_id": plan.id, "customer_hash": plan.customer_hash, "who": plan.who, "why": plan.why, "erased_at": now, "found": found}
    control.append(settings, ERASURES, [row])
