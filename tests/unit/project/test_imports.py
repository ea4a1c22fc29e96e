"""The walls of the house: who may import what, over every Python file of the project."""

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from spark_jobs.runtime.settings import ROOT


class Room(NamedTuple):
    """A package and what its files never import; `but` names exceptions to that."""

    package: str
    never: tuple[str, ...]
    but: tuple[str, ...] = ()


# Outside the jobs: what must not be imported.
ROOMS = [
    Room(
        "dags",
        ("dags", "include", "expectations", "spark_jobs", "tests", "pyspark"),
        but=("include.orchestration", "spark_jobs.runtime.settings"),
    ),
    Room("include", ("dags", "tests", "pyspark")),
    Room("include.orchestration", ("expectations", "include"), but=("include.orchestration",)),
    Room("include.setup", ("airflow", "expectations", "include"), but=("include.setup", "include.producer")),
    Room("include.demo", ("airflow", "expectations", "include"), but=("include.demo", "include.producer", "include.stack")),
    Room(
        "include.quality_page",
        ("include", "expectations"),
        but=(
            *("include.quality_page", "include.orchestration.defaults", "include.orchestration.assets", "include.orchestration.decisions"),
            "expectations.row_rules",  # what a rule asks for, in words
            "expectations.wire_format",  # values as JSON, as the rules see them
        ),
    ),
    Room("include.metrics", ("airflow", "expectations", "include"), but=("include.metrics", "include.quality_page")),
    Room("include.producer", ("airflow", "expectations", "include"), but=("include.producer",)),
    Room("include.reader", ("airflow", "expectations", "include"), but=("include.reader",)),
    Room("include.backup", ("airflow", "expectations", "include"), but=("include.backup", "include.stack")),
    Room("include.stack", ("airflow", "expectations", "include"), but=("include.stack", "include.airflow_roles")),
    Room("include.docs", ("airflow", "include"), but=("include.docs", "include.metrics")),
    Room("include.plugins", ("expectations", "include"), but=("include.orchestration", "include.quality_page")),
    Room("expectations", ("airflow", "dags", "include", "spark_jobs", "tests")),
    Room("spark_jobs", ("airflow", "dags", "include", "tests")),
    Room("spark_jobs.kafka", ("pyspark",)),
]
# Of spark_jobs, floor by floor: each room, and the rooms that it may import. A room on a floor imports from floors below it only.
FLOORS: tuple[dict[str, tuple[str, ...]], ...] = (
    {"runtime": ()},
    {"lake": ("runtime",)},
    {"kafka": ("lake", "runtime"), "control": ("lake", "runtime"), "service": ("lake", "runtime")},
    {
        "bronze": ("service", "control", "kafka", "lake", "runtime"),
        "silver": ("control", "kafka", "lake", "runtime"),
        "gold": ("control", "lake", "runtime"),
    },
    {
        "live": ("gold", "silver", "bronze", "service", "control", "kafka", "lake", "runtime"),
        "releases": ("silver", "control", "lake", "runtime"),
    },
    {
        "reprocessing": ("releases", "silver", "gold", "control", "lake", "runtime"),
        "maintenance": ("releases", "live", "silver", "bronze", "control", "lake", "runtime"),
        "audit": ("releases", "silver", "control", "lake", "runtime"),
        "explain": ("releases", "gold", "control", "lake", "runtime"),
        "export": ("releases", "control", "lake", "runtime"),
    },
    {
        "commands": (
            *("reprocessing", "maintenance", "audit", "explain", "export"),
            *("live", "releases", "bronze", "silver", "gold", "control", "service", "kafka", "lake", "runtime"),
        )
    },
    {"run": ("commands", "runtime")},
)
MAY_IMPORT = {room: allowed for floor in FLOORS for room, allowed in floor.items()}
FLOOR_OF = {room: number for number, floor in enumerate(FLOORS) for room in floor}
# The only modules of a room that may enter another one.
DOORS = {
    ("releases", "silver"): {"spark_jobs.releases.rule_rehearsal"},  # judges stored rows by other rules
    ("audit", "silver"): {"spark_jobs.audit.judged"},  # a second opinion computes by itself, but parses values the same way
}
JUDGES = (  # may import expectations
    "spark_jobs.silver",
    "spark_jobs.control.rule_sets",
    "spark_jobs.live",
    "spark_jobs.audit.judged",
    "spark_jobs.releases",
    "spark_jobs.reprocessing",
    "spark_jobs.maintenance.expiry",  # removes reports with their verdicts
)
# What is imported with these must not bring Spark along: it costs seconds, and DAG files are parsed all the time.
WITHOUT_SPARK = (
    "dags",
    "include.backup",
    "include.demo",
    "include.metrics",
    "include.orchestration",
    "include.producer",
    "include.quality_page",
    "include.reader",
    "include.stack",
    "expectations",
)


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.package)
def test_a_room_imports_nothing_that_it_must_not(room: Room) -> None:
    modules = modules_of(room.package)
    assert modules, f"found no file of {room.package}"
    found = [
        f"{module} imports {name}"
        for module, file in modules.items()
        for name in imports(ast.parse(file.read_text()))
        if within(name, room.never) and not within(name, room.but)
    ]
    assert found == []


def test_only_modules_that_judge_import_expectations() -> None:
    modules = modules_of("spark_jobs")
    meeting = {
        module for module, file in modules.items() if any(within(name, ("expectations",)) for name in imports(ast.parse(file.read_text())))
    }
    assert meeting, "found no module that judges"
    assert [module for module in meeting if not within(module, JUDGES)] == []


def test_every_module_of_the_jobs_lies_in_a_room() -> None:
    rooms = {room_of(module) for module in modules_of("spark_jobs")}
    assert rooms - {""} == MAY_IMPORT.keys()
    assert [file.name for file in sorted((ROOT / "spark_jobs").glob("*.py"))] == ["__init__.py", "run.py"]
    assert len(MAY_IMPORT) <= 20
    assert len(FLOORS) <= 8
    assert [(room, other) for room, allowed in MAY_IMPORT.items() for other in allowed if FLOOR_OF[other] >= FLOOR_OF[room]] == []


def test_rooms_of_the_jobs_import_only_what_they_may() -> None:
    arrows = arrows_of(modules_of("spark_jobs"))
    assert len(arrows) > 100
    assert [f"{module} imports {name}" for module, name in arrows if not is_allowed(module, name)] == []


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("spark_jobs.lake.writes", "from spark_jobs import control"),  # a floor up
        ("spark_jobs.gold.totals", "from spark_jobs.silver import job"),  # a room on the same floor
        ("spark_jobs.bronze.stream", "def f():\n    from spark_jobs.maintenance import requests"),  # inside a function
        ("spark_jobs.releases.gates", "from spark_jobs.silver.judge import judge"),  # not by the one door
        ("spark_jobs.audit.compare", "import spark_jobs.silver.transactions"),
        ("spark_jobs.runtime.times", "import spark_jobs.run"),
    ],
)
def test_a_violation_is_found(module: str, text: str, tmp_path: Path) -> None:
    file = tmp_path / "violation.py"
    file.write_text(text)
    assert any(not is_allowed(*arrow) for arrow in arrows_of({module: file}))


def test_no_modules_of_the_jobs_import_each_other_in_a_circle() -> None:
    files = modules_of("spark_jobs")
    imported = {module: {name for name in imports(ast.parse(file.read_text())) if name in files} for module, file in files.items()}
    packages = {module for module, file in files.items() if file.name == "__init__.py"}
    left = {module: names - packages - {module} for module, names in imported.items()}
    while free := [module for module, names in left.items() if not names]:
        left = {module: names - set(free) for module, names in left.items() if module not in free}
    assert left == {}


@pytest.mark.parametrize("package", WITHOUT_SPARK)
def test_importing_does_not_bring_spark_along(package: str) -> None:
    modules = modules_of(package)
    assert modules, f"found no file of {package}"
    assert {name: way for name in modules if (way := way_to("pyspark", name))} == {}


@pytest.mark.parametrize("package", ["include.metrics"])
def test_importing_does_not_bring_airflow_along(package: str) -> None:
    modules = modules_of(package)
    assert modules, f"found no file of {package}"
    assert {name: way for name in modules if (way := way_to("airflow", name))} == {}
    assert way_to("airflow", "include.quality_page.status")  # which is why the exporter does not use that


def test_the_walk_sees_every_form_of_import() -> None:
    text = "import a.b\nfrom c import d\nif x:\n    from e.f import g\ndef h():\n    import i\n"
    assert set(imports(ast.parse(text))) == {"a.b", "c", "c.d", "e.f", "e.f.g", "i"}
    assert set(imports(ast.parse(text), at_once=True)) == {"a.b", "c", "c.d", "e.f", "e.f.g"}
    assert set(imports(ast.parse("if TYPE_CHECKING:\n    import a\nelse:\n    import b\n"), at_once=True)) == {"b"}


def test_the_walk_finds_the_way_to_spark() -> None:
    assert way_to("pyspark", "spark_jobs.bronze.ingest") == ["spark_jobs.bronze.ingest", "pyspark.sql"]


def arrows_of(modules: Mapping[str, Path]) -> list[tuple[str, str]]:
    """Each import of one room of the jobs by another: the module that imports, and what it imports."""
    found = [(module, name) for module, file in modules.items() for name in imports(ast.parse(file.read_text()))]
    return [(module, name) for module, name in found if room_of(name) in MAY_IMPORT and room_of(name) != room_of(module)]


def is_allowed(module: str, name: str) -> bool:
    """Whether a module may import this name of another room."""
    room, other = room_of(module), room_of(name)
    return other in MAY_IMPORT[room] and module in DOORS.get((room, other), {module})


def room_of(name: str) -> str:
    """The room of a module of spark_jobs; empty for anything else."""
    parts = name.split(".")
    return parts[1] if parts[0] == "spark_jobs" and len(parts) > 1 else ""


def modules_of(package: str) -> dict[str, Path]:
    """Module name -> file, for a package and all below it."""
    folder = ROOT / package.replace(".", "/")
    names = {file.relative_to(ROOT).with_suffix(""): file for file in sorted(folder.rglob("*.py"))}
    return {".".join(name.parts).removesuffix(".__init__"): file for name, file in names.items()}


def imports(tree: ast.AST, at_once: bool = False) -> Iterator[str]:
    """Every name that is imported; `at_once`: only those that importing the file itself brings along."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif at_once and isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            yield from imports(ast.Module(node.orelse, []), at_once)
        elif not (at_once and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)):
            yield from imports(node, at_once)


def within(name: str, packages: Iterable[str]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def way_to(target: str, start: str) -> list[str]:
    """The chain of imports by which importing `start` brings `target` along; empty when it does not."""
    ways = [[start]]
    seen = {start}
    while ways:
        way = ways.pop(0)
        for name in imports(ast.parse(file_of(way[-1]).read_text()), at_once=True):
            if within(name, (target,)):
                return [*way, name]
            # Importing a.b.c imports a and a.b too.
            parts = name.split(".")
            for step in (".".join(parts[:count]) for count in range(1, len(parts) + 1)):
                if step not in seen and file_of(step).is_file():
                    seen.add(step)
                    ways.append([*way, step])
    return []


def file_of(module: str) -> Path:
    path = ROOT / module.replace(".", "/")
    package = path / "__init__.py"
    return package if package.is_file() else path.with_suffix(".py")
