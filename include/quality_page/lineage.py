"""The lineage graph: from Kafka's topics to the release, by what each asset is made from, drawn on the server."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from include.orchestration.assets import RELEASE, sources_of
from include.quality_page.status import Status
from include.quality_page.words import age
from spark_jobs.control.verdicts import Verdict
from spark_jobs.lake.tables import BRONZE, LAYERS

WIDTH, HEIGHT, STEP, TOP = 228, 24, 31, 26  # of a node; from one to the next; the room for the layers' names
MARKS = {"passed": "✓", "closed": "✗", "overruled": "!", "warned": "!", "": ""}


@dataclass(frozen=True)
class Node:
    """A topic, a table or the release at its place. `state` is its newest verdict's; `is_old`: judged longer ago than the limit."""

    name: str
    label: str
    x: int
    y: int
    state: str
    says: str
    age: str
    is_old: bool

    @property
    def mark(self) -> str:
        """The state as one letter, for those who see no colour."""
        return MARKS[self.state]


@dataclass(frozen=True)
class Graph:
    """Nodes, and edges as curves between them: (from, to, path)."""

    layers: tuple[tuple[str, int], ...]
    nodes: tuple[Node, ...]
    edges: tuple[tuple[str, str, str], ...]
    width: int
    height: int
    node_width: int = WIDTH - 2
    node_height: int = HEIGHT


def draw(verdicts: dict[str, list[Verdict]], status: Status, old_after: float, taken: Mapping[str, datetime | None]) -> Graph:
    """The graph of all tables with their newest verdicts; what was judged more than `old_after` seconds ago is old.

    `taken` is, by topic, the time of the newest record that bronze has taken.
    """
    columns = {
        "kafka": [f"kafka.{table.topic}" for table in BRONZE],
        **{layer: [table.name for table in tables] for layer, tables in LAYERS.items()},
        "release": [RELEASE.name],
    }
    most = max(map(len, columns.values()))
    space = WIDTH + 40
    nodes: dict[str, Node] = {}
    for column, names in enumerate(columns.values()):
        lead = (most - len(names)) * STEP // 2
        for place, name in enumerate(names):
            nodes[name] = _node(name, column * space, TOP + lead + place * STEP, verdicts.get(name) or [], status, old_after, taken)
    edges = [(source, name, _curve(nodes[source], node)) for name, node in nodes.items() for source in sources_of(name)]
    layers = tuple((layer, column * space) for column, layer in enumerate(columns))
    return Graph(layers, tuple(nodes.values()), tuple(edges), space * len(columns) - 40, TOP + most * STEP)


def neighbours(name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The topics and tables that a table is made from, and the tables that are made from it."""
    every = [table.name for tables in LAYERS.values() for table in tables]
    return sources_of(name), tuple(each for each in every if name in sources_of(each))


def _node(
    name: str, x: int, y: int, verdicts: list[Verdict], status: Status, old_after: float, taken: Mapping[str, datetime | None]
) -> Node:
    at: datetime | None = verdicts[0].judged_at if verdicts else None
    state, says = (verdicts[0].state, verdicts[0].says) if verdicts else ("", "not judged yet" if status.are_gates_known else "not known")
    says = f"{name}: {says}"
    label = name.partition(".")[2] or name
    if name == RELEASE.name:
        is_well = "passed" if status.are_gates_known else ""
        at, state = (status.release.at, "warned" if status.open else is_well) if status.release else (None, "")
        none = "no release yet" if status.is_release_known else "release not known"
        label = f"release {status.release.number}" if status.release else none
        says = f"{label}: {'held back by a closed gate' if status.open else 'what readers see'}"
    elif name.startswith("kafka."):
        at = taken.get(label)
        says = f"topic {label}: {'newest record that bronze has taken' if at else 'bronze has taken no record'}"
    seconds = (status.now - at).total_seconds() if at else 0.0
    return Node(
        name, label, x, y, state, says + (f", {age(seconds)} ago" if at else ""), _short(seconds) if at else "", seconds > old_after
    )


def _short(seconds: float) -> str:
    """An age that fits a node: `2 s`, `5 min`, `3 d`."""
    count, unit = age(round(seconds)).split(" ")
    units = {"second": "s", "minute": "min", "hour": "h", "day": "d", "month": "mo", "year": "y"}
    return f"{count} {units[unit.removesuffix('s')]}"


def _curve(source: Node, target: Node) -> str:
    x, y, to_x, to_y = source.x + WIDTH, source.y + HEIGHT // 2, target.x, target.y + HEIGHT // 2
    middle = (x + to_x) // 2
    return f"M{x} {y}C{middle} {y} {middle} {to_y} {to_x} {to_y}"
