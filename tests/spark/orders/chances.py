"""Random orders of commands, in which what is dangerous in each other's neighbourhood often meets."""

import random

_RULES = ("old", "new")
_LEASES = {"silver": 12, "gold": 30, "backfill": 40, "redrive": 20, "maintenance": 60}  # points that most runs of a job reach, about
_POINTS = {"silver": 30, "gold": 60, "backfill": 80, "redrive": 40, "maintenance": 60, "release": 3, "decide": 40, "gate": 8, "bronze": 6}
_GATED = ("gate bronze", "gate silver", "gold", "gate gold", "release")
_ARRIVALS = ("transactions", "transactions customers accounts", "customers", "accounts", "transactions customers")


def random_order(chance: random.Random, length: int, *, is_new: bool = True) -> list[str]:
    """Some commands, of which about every third one dies and is repeated; `is_new`: of a world that may be empty."""
    lines: list[str] = []
    if is_new and chance.random() < 0.7:
        lines += ["produce", "bronze", "silver", *_GATED]
    while len(lines) < length:
        lines += chance.choice(_NEIGHBOURS)(chance) if chance.random() < 0.6 else _alone(chance)
    return lines


def _alone(chance: random.Random) -> list[str]:
    line = chance.choice(
        [
            *("silver", "gold", "release", "gate bronze", "gate silver", "gate gold", "gate silver closed", "gate gold closed"),
            *("decide release-anyway", "decide roll-back", "decide wait", "redrive amount_small", "redrive zipcode_known"),
            *("maintenance", "days 8", "days 3", "copy", "restore", _rules(chance), _backfill(chance)),
            *[_arrive(chance)] * 3,
        ]
    )
    if line.startswith("produce"):
        return [line, _maybe_killed(chance, line.replace("produce", "bronze"))]
    return _perhaps_killed(chance, line)


def _arrive(chance: random.Random) -> str:
    return f"produce {chance.choice(_ARRIVALS)}"


def _arrived(chance: random.Random) -> list[str]:
    line = _arrive(chance)
    return [line, line.replace("produce", "bronze")]


def _rules(chance: random.Random) -> str:
    return f"rules {chance.choice(_RULES)}"


def _backfill(chance: random.Random) -> str:
    first, last = sorted(chance.sample((0, 30, 60, 1500, 3000), 2))
    only = chance.choice(("", " silver.transactions", " silver.transactions silver.customers"))
    return f"backfill {first} {last}{only}{chance.choice(('', ' publish'))}"


def _killed(chance: random.Random, line: str) -> str:
    return f"{line} ! {1 + chance.randrange(_POINTS.get(line.split()[0], 5))}"


def _maybe_killed(chance: random.Random, line: str) -> str:
    return _killed(chance, line) if chance.random() < 0.25 else line


def _perhaps_killed(chance: random.Random, line: str) -> list[str]:
    """A command; or one that dies, and its repetition."""
    dies = line.split()[0] in _POINTS and chance.random() < 0.35
    return [_killed(chance, line), line] if dies else [line]


def _rules_change_after_a_death(chance: random.Random) -> list[str]:
    job = chance.choice(("silver", "silver", "redrive amount_small", _backfill(chance)))
    return [*_arrived(chance), _killed(chance, job), _rules(chance), *([job] if chance.random() < 0.5 else []), "silver"]


def _decision_beside_a_job(chance: random.Random) -> list[str]:
    job = chance.choice(("silver", "gold", _backfill(chance), "redrive amount_small", "maintenance"))
    other = chance.choice(("decide roll-back", "decide roll-back", "silver", "gold", "release", "maintenance"))
    point = 1 + chance.randrange(_LEASES[job.split()[0]])
    arrived = [*_arrived(chance), *(["silver"] if job.split()[0] != "silver" and chance.random() < 0.5 else [])]
    return [*arrived, f"{job} @ {point} & {_maybe_killed(chance, other)}"]


def _gates_then_days(chance: random.Random) -> list[str]:
    gates = [line for line in _GATED[:-1] if chance.random() < 0.9]
    closed = [gates.pop() + " closed"] if gates and gates[-1] != "gold" and chance.random() < 0.5 else []
    end = ["decide release-anyway"] if closed else []
    return [*_arrived(chance), "silver", *gates, *closed, "maintenance", "days 8", "maintenance", *end, "release"]


def _death_within_a_backfill(chance: random.Random) -> list[str]:
    line = _backfill(chance)
    next_job = chance.choice(("silver", "gold", "redrive zipcode_known", line))
    return [_rules(chance), _killed(chance, line), next_job, "gate silver", chance.choice(("decide roll-back", "gold")), line]


def _older_warehouse(chance: random.Random) -> list[str]:
    """Sometimes one of before a roll-back, after which the same generation begins once more."""
    more = [line for _ in range(chance.randrange(1, 3)) for line in (*_arrived(chance), "silver")]
    back = ["decide roll-back"] if chance.random() < 0.4 else []
    after = [*_arrived(chance)] if chance.random() < 0.5 else []
    rolled_back = [*back, "silver"] if back else []
    return ["copy", *more, *rolled_back, *(["gold"] if chance.random() < 0.3 else []), "restore", "bronze", *after, *back, "silver"]


def _first_gold_dies(chance: random.Random) -> list[str]:
    return [*_arrived(chance), "silver", _killed(chance, "gold"), *_arrived(chance), "silver", "gold"]


def _one_layer_ahead(chance: random.Random) -> list[str]:
    gates = [line for line in _GATED if chance.random() < 0.8]
    return [*_arrived(chance), "silver", *gates]


_NEIGHBOURS = (
    _rules_change_after_a_death,
    _decision_beside_a_job,
    _gates_then_days,
    _death_within_a_backfill,
    _older_warehouse,
    _first_gold_dies,
    _one_layer_ahead,
)
