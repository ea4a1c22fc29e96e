"""The walls of the house: who may import what, over every Python file of the project."""

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from spark_jobs.runtime.settings import ROOT


class Room(NamedTuple):
    """A package and what its files never import; `but` names exceptions to that."""

    package: str
    never: tuple[str, ...]
    but: tuple[str, ...] = ()


ROOMS = [
    Room(
        "dags",
        ("dags", "include", "expectations", "spark_jobs", "tests", "pyspark"),
        but=("include.orchestration", "spark_jobs.runtime.settings"),
    ),
    Room("include", ("dags", "tests", "pyspark")),
    Room("include.orchestration", ("expectations", "include"), but=("include.orchestration",)),
    Room("include.quality_page", ("include", "expectations"), but=("include.quality_page", "include.orchestration.defaults")),
    Room("include.producer", ("airflow", "expectations", "include"), but=("include.producer",)),
    Room("include.reader", ("airflow", "expectations", "include"), but=("include.reader",)),
    Room("include.stack", ("airflow", "expectations", "include.orchestration")),
    Room("expectations", ("airflow", "dags", "include", "spark_jobs", "tests")),
    Room("spark_jobs", ("airflow", "dags", "include", "tests")),
    Room("spark_jobs.bronze", ("spark_jobs.silver", "spark_jobs.gold", "expectations")),
    Room("spark_jobs.service", ("spark_jobs.bronze", "spark_jobs.silver", "spark_jobs.gold", "expectations", "pyspark")),
    Room("spark_jobs.silver", ("spark_jobs.gold",)),
    Room("spark_jobs.gold", ("spark_jobs.bronze", "expectations")),
    Room(  # a second opinion: it computes by itself
        "spark_jobs.audit",
        ("spark_jobs.bronze", "spark_jobs.silver", "spark_jobs.gold", "expectations"),
        but=("spark_jobs.silver.parse", "spark_jobs.control.rule_sets"),
    ),
]
# The only doors from spark_jobs to expectations: judging rows and running a gate.
DOORS = (
    "spark_jobs.silver",
    "spark_jobs.releases.gates",
    "spark_jobs.gate",
    "spark_jobs.rule_sets",
    "spark_jobs.releases.rehearsal",
    "spark_jobs.releases.rule_rehearsal",
)
# What is imported with these must not bring Spark along: it costs seconds, and DAG files are parsed all the time.
WITHOUT_SPARK = (
    "dags",
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


def test_jobs_and_expectations_meet_in_two_places_only() -> None:
    modules = modules_of("spark_jobs")
    meeting = {
        module for module, file in modules.items() if any(within(name, ("expectations",)) for name in imports(ast.parse(file.read_text())))
    }
    assert meeting, "found no module that judges"
    assert [module for module in meeting if not within(module, DOORS)] == []


@pytest.mark.parametrize("package", WITHOUT_SPARK)
def test_importing_does_not_bring_spark_along(package: str) -> None:
    modules = modules_of(package)
    assert modules, f"found no file of {package}"
    assert {name: way for name in modules if (way := way_to("pyspark", name))} == {}


def test_the_walk_sees_every_form_of_import() -> None:
    text = "import a.b\nfrom c import d\nif x:\n    from e.f import g\ndef h():\n    import i\n"
    assert set(imports(ast.parse(text))) == {"a.b", "c", "c.d", "e.f", "e.f.g", "i"}
    assert set(imports(ast.parse(text), at_once=True)) == {"a.b", "c", "c.d", "e.f", "e.f.g"}
    assert set(imports(ast.parse("if TYPE_CHECKING:\n    import a\nelse:\n    import b\n"), at_once=True)) == {"b"}


def test_the_walk_finds_the_way_to_spark() -> None:
    assert way_to("pyspark", "spark_jobs.bronze.ingest") == ["spark_jobs.bronze.ingest", "pyspark.sql"]


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
