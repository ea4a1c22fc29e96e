"""What the documentation says exists: targets, settings, jobs, files; and what it tells readers to run works."""

import itertools
import os
import re
import subprocess
import sys
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from include.docs import generate
from include.setup.check_files import project_files
from spark_jobs import control
from spark_jobs.lake import tables
from spark_jobs.releases import catalogues
from spark_jobs.run import JOBS
from spark_jobs.runtime import errors
from spark_jobs.runtime.job_process import MEANINGS
from spark_jobs.runtime.settings import ROOT, Settings, read_settings
from tests.unit.project.test_imports import FLOOR_OF, MAY_IMPORT

README = (ROOT / "README.md").read_text()
PAGES = sorted(project_files(".md"))
SETTING = re.compile(r'"(LEDGER_[A-Z_]+)"')
CELLS = re.compile(r"^\| (.+) \|$", re.MULTILINE)


def page_text(name: str) -> str:
    return (ROOT / "include/docs" / name).read_text()


def section(title: str) -> str:
    """The text of a section of the README."""
    return re.split(r"^## ", README.split(f"\n## {title}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]


def tables_of(title: str) -> list[list[list[str]]]:
    """The tables of a section, each as rows of cells without its head."""
    texts = re.findall(r"(?:^\|.*\n)+", section(title), re.MULTILINE)
    return [[[cell.strip() for cell in row[1:-1].split("|")] for row in text.splitlines()[2:]] for text in texts]


def fenced(language: str, page: str) -> str:
    return "\n".join(re.findall(rf"^```{language}\n(.*?)^```$", page_text(page), re.MULTILINE | re.DOTALL))


def fenced_readme(language: str) -> str:
    return "\n".join(re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL))


def test_every_make_target_that_is_named_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {page.name: set(re.findall(r"(?:`|^)make ([a-z]+)", page.read_text(), re.MULTILINE)) for page in PAGES}
    assert {"demo", "test", "status", "down"} <= named["README.md"]
    assert {page: names - targets for page, names in named.items() if names - targets} == {}


def test_the_settings_table_names_what_is_read_with_its_defaults() -> None:
    read = set(SETTING.findall((ROOT / "spark_jobs/runtime/settings.py").read_text()))
    rows = [line.split(" | ") for line in CELLS.findall(page_text("settings.md"))][1:]
    assert len(rows) == len(fields(Settings))
    assert {row[0].strip("`") for row in rows} == read
    defaults = {row[0].strip("`"): row[1].strip("`") for row in rows}
    settings = read_settings({"LEDGER_HOME": str(ROOT / ".ledger")})
    assert settings == read_settings({})
    home = defaults["LEDGER_HOME"]
    assert settings.home == ROOT / home
    assert settings.warehouse == ROOT / defaults["LEDGER_WAREHOUSE"].replace("$LEDGER_HOME", home)
    assert settings.checkpoints == ROOT / defaults["LEDGER_CHECKPOINTS"].replace("$LEDGER_HOME", home)
    assert settings.spark_master == defaults["LEDGER_SPARK_MASTER"]
    assert str(settings.allowed_lateness_seconds) == defaults["LEDGER_ALLOWED_LATENESS_SECONDS"]
    assert str(settings.large_credit) == defaults["LEDGER_LARGE_CREDIT"]
    assert str(settings.release_days) == defaults["LEDGER_RELEASE_DAYS"]
    assert str(settings.freshness_seconds) == defaults["LEDGER_FRESHNESS_SECONDS"]
    assert str(settings.gate_seconds) == defaults["LEDGER_GATE_SECONDS"]


def test_every_setting_that_a_page_names_is_read_somewhere() -> None:
    code = "".join(file.read_text() for folder in ("spark_jobs", "include") for file in (ROOT / folder).rglob("*.py"))
    named = {name for page in PAGES for name in re.findall(r"\bLEDGER_[A-Z_]+\b", page.read_text())}
    assert len(named) > 9
    assert {name for name in named if f'"{name}"' not in code} == set()


def test_the_exit_codes_are_those_of_the_errors() -> None:
    known = {kind.exit_code for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.LedgerError)}
    assert {int(row[0]) for row in tables_of("Commands")[1]} == known | {0}
    assert set(MEANINGS) < known


def test_every_job_is_in_the_table_of_commands() -> None:
    words = {word for row in tables_of("Commands")[0] for word in re.findall(r"`([a-z_]+)[^`]*`", row[1])}
    assert words == set(JOBS)


def test_every_job_and_option_that_a_page_names_exists() -> None:
    """In a command line, and in the short form `run JOB`."""
    options = set(re.findall(r'"(--[a-z-]+)"', (ROOT / "spark_jobs/commands/arguments.py").read_text()))
    lines = [(page.name, line) for page in PAGES for line in re.findall(r"(?:spark_jobs\.run|`run) ([a-z_]+[^`#\n]*)", page.read_text())]
    assert len(lines) > 50
    assert {(page, line) for page, line in lines if line.split()[0] not in JOBS} == set()
    assert {(page, name) for page, line in lines for name in re.findall(r"(?<!\S)\[?(--[a-z-]+)", line) if name not in options} == set()


def test_every_module_that_a_page_runs_exists() -> None:
    named = {(page.name, name) for page in PAGES for name in re.findall(r"-m ((?:include|spark_jobs|tests)[\w.]*\w)", page.read_text())}
    places = {(page, name): ROOT / name.replace(".", "/") for page, name in named}
    assert len(named) > 5
    assert [key for key, place in places.items() if not (place.with_suffix(".py").exists() or (place / "__main__.py").exists())] == []


def test_the_readme_is_short_and_begins_with_the_two_commands() -> None:
    lines = README.splitlines()
    assert len(lines) <= 120
    assert lines.index("```bash") < 20
    assert [line.split("#")[0].strip() for line in fenced_readme("bash").splitlines()] == ["make demo", "make test"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_to_a_file_resolves(page: Path) -> None:
    links = [unquote(link.split("#")[0]) for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()) if "://" not in link]
    assert [link for link in links if link and not (page.parent / link).exists()] == []


def test_every_file_that_a_page_names_exists() -> None:
    named = {
        (page.name, path)
        for page in PAGES
        for path in re.findall(r"`((?:dags|include|spark_jobs|expectations|tests)/[\w./-]*)`", page.read_text())
    }
    assert len(named) > 10
    assert {(page, path) for page, path in named if not (ROOT / path).exists()} == set()


def test_every_file_that_the_architecture_names_in_a_room_exists() -> None:
    """Its paths are below spark_jobs or include; a bare name is that of a file in the room of its row."""
    named = re.findall(r"`([a-z_]+(?:/[a-z_]+)*\.(?:py|yaml|sql))`", page_text("architecture.md"))
    assert len(named) > 20
    files = {f"/{file}" for folder in ("spark_jobs", "include", "expectations", "tests") for file in (ROOT / folder).rglob("*.*")}
    assert [path for path in named if not any(file.endswith(f"/{path}") for file in files)] == []


def test_every_page_is_linked_from_the_readme() -> None:
    pages = {page.name for page in (ROOT / "include/docs").glob("*.md")}
    assert pages == set(re.findall(r"\(include/docs/([a-z-]+\.md)\)", README))


def test_the_glossary_has_few_terms_and_each_once() -> None:
    terms = re.findall(r"^\| \*\*(.+?)\*\* \|", page_text("glossary.md"), re.MULTILINE)
    assert 10 < len(terms) <= 20
    assert len(terms) == len(set(terms))


def test_every_edge_of_the_semantics_has_its_tests() -> None:
    """Each section names some; all of them are there, and those of the edges are all named."""
    page = (ROOT / "include/docs/semantics.md").read_text()
    named = re.findall(r"`(tests/\S+\.py)::(test_\w+)`", page)
    assert [(file, name) for file, name in named if f"def {name}(" not in (ROOT / file).read_text()] == []
    edges = ROOT / "tests/spark/gold/test_semantics.py"
    assert set(re.findall(r"^def (test_\w+)", edges.read_text(), re.MULTILINE)) <= {name for _, name in named}
    without = [text.splitlines()[0] for text in page.split("\n## ")[1:] if "::test_" not in text]
    assert without == []


def test_the_architecture_draws_the_rooms_as_the_test_of_imports_has_them() -> None:
    rows = re.findall(r"^\| (\d) \| `([a-z]+)(?:/|\.py)` \| .+ \| (.*) \|$", page_text("architecture.md"), re.MULTILINE)
    drawn = {room: (int(floor), set(imports.split(", ")) - {"nothing"}) for floor, room, imports in rows}
    drawn["commands"] = (drawn["commands"][0], drawn.keys() - {"commands", "run"})  # "every room below"
    assert drawn == {room: (FLOOR_OF[room] + 1, set(allowed)) for room, allowed in MAY_IMPORT.items()}
    arrows = fenced("mermaid", "architecture.md")
    assert all(re.search(rf"\b{room}\b", arrows) for room in MAY_IMPORT)


def test_every_decision_is_dated_and_linked() -> None:
    decisions = sorted((ROOT / "include/docs/decisions").iterdir())
    assert decisions
    for page in decisions:
        assert re.fullmatch(r"\d{4}-\d{2}-\d{2}-[a-z-]+\.md", page.name)
        assert page.read_text().startswith(f"# {page.name[:10]}: ")
        assert f"(decisions/{page.name})" in page_text("architecture.md")


def test_generated_pages_are_current() -> None:
    assert {name: generate.read(generate.FOLDER / name) for name in generate.pages()} == generate.pages()


def test_a_page_that_differs_is_found_and_rewritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(generate, "FOLDER", tmp_path)
    assert generate.main(["--check"]) == 1
    assert list(tmp_path.iterdir()) == []
    assert generate.main([]) == 0
    assert generate.main(["--check"]) == 0
    (tmp_path / "rules.md").write_text("old")
    capsys.readouterr()
    assert generate.main(["--check"]) == 1
    assert capsys.readouterr().out == "include/docs/rules.md: differs from the declarations: run make format\n"


def test_generated_pages_name_every_table_column_and_rule() -> None:
    pages = generate.pages()
    layers = {**tables.LAYERS, "control": tables.CONTROL}
    for table in itertools.chain.from_iterable(layers.values()):
        _, _, after = pages["tables.md"].partition(f"\n### {table.name}\n")
        assert re.findall(r"^\| `(\w+)` \|", after.split("\n### ")[0], re.MULTILINE) == list(table.columns)
    assert "| `headers` | `array<struct<key: string, value: binary>>` |" in pages["tables.md"]
    assert "| `amount` | `decimal(38,2)` |" in pages["tables.md"]
    assert pages["rules.md"].count("| `parseable` |") == 3


def test_readers_get_the_released_version(tmp_path: Path) -> None:
    settings = read_settings({"LEDGER_HOME": str(tmp_path / ".ledger")})
    now = datetime(2024, 5, 1, tzinfo=UTC)
    release = {"released_at": now, "table": tables.DAILY_TOTALS.name}
    rows = [release | {"release_id": number, "version": version} for number, version in ((2, 1), (1, 0))]
    control.append(settings, tables.RELEASES, rows)
    tables.ensure_tables(settings, [tables.DAILY_TOTALS])
    schema = pa.schema(tables.DAILY_TOTALS.delta_schema().to_arrow())
    for kind in ("Credit", "Debit"):  # versions 1 and 2: the second is not released yet
        write_deltalake(str(tables.DAILY_TOTALS.path(settings)), pa.Table.from_pylist([{"type": kind}], schema=schema), mode="append")
    catalogues.bring_up_to_date(settings)
    program = fenced("python", "reading.md") + "\nprint(list(totals['type']), table.version(), same.version())"
    environment = {name: text for name, text in os.environ.items() if not name.startswith("LEDGER_")}
    environment |= {"LEDGER_HOME": str(settings.home), "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "['Credit'] 1 1\n"), done.stderr
