"""The Great Expectations project of a pipeline: profiles in, validation results and Data Docs out.

Under its folder: `gx` (the project: suites, checkpoints, results; any GX 1.x can open it), `profiles` (the last measures of each
table, which the checkpoints read) and `data_docs` (the report of every run; start at index.html).
"""

import csv
import fcntl
import hashlib
import json
import logging
import re
import sys
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from html import unescape
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import yaml

from expectations.data_docs import INDEX, cut_off_the_web, styles, write_index
from expectations.profile import Profile
from expectations.suites import Suite

if TYPE_CHECKING:
    from great_expectations.core.expectation_validation_result import ExpectationSuiteValidationResult
    from great_expectations.data_context.store.validation_results_store import ValidationResultsStore

PROJECT_FILE = Path(__file__).parent / "great_expectations.yml"
_SOURCE, _BATCH = "profiles", "profile"
DOCS = "data_docs"
_PAGES = f"{DOCS}/validations"
_TAG, _ROW = re.compile("<[^>]*>"), re.compile("<tr>.*?</tr>", re.DOTALL)
_FAILED, _WARNED = "fa-times text-danger", "fa-exclamation-circle text-warning"
_STATUS = re.compile(r'(Status:</span>\s*)<i class="[^"]*" aria-hidden="true"></i>\s*(?:Succeeded|Failed)')
# What GX can do with these no gate does: it does without the first ones, and loads the others when they are first used. Importing all
# of them would take more time than importing GX.
_UNUSED = ("pyspark", "sqlalchemy", "boto3", "botocore")
_LATE = ("scipy.stats", "altair")


def validate(
    folder: Path, layer: str, measured: Sequence[tuple[Suite, Profile]], run_id: str, now: datetime
) -> dict[str, tuple["ExpectationSuiteValidationResult", str]]:
    """Judge the profiles of a layer: by table, GX's result and the address of its page in Data Docs.

    One process at a time; others wait. Raises whatever GX raises.
    """
    gx, measures = import_great_expectations(), {suite.table: (suite, profile) for suite, profile in measured}
    with _locked(folder):
        for _, profile in measured:
            _write_profile(folder, profile)
        (context, stored), run = _open_project(gx, folder), gx.RunIdentifier(run_name=run_id, run_time=now)
        expected = {suite.table: gx.ExpectationSuite(name=suite.table, expectations=list(suite.expectations)) for suite, _ in measured}
        outcome = {table: _judge(context, suite, run) for table, suite in expected.items()}
        passed = {table: _passed_words(result, *measures[table]) for table, (_, result) in outcome.items()}
        for table, (key, result) in outcome.items():
            result.success = passed[table] is not None  # for GX a warning is a failure
            for store in (context.validation_results_store, stored):
                store.set(key, result)
        marks = {key.expectation_suite_identifier: _mark(gx, measures[table][0]) for table, (key, _) in outcome.items()}
        changed = {key: mark for key, mark in marks.items() if not _ends_with(_suite_page(folder, key.name), mark)}
        if changed:
            _store(gx, context, layer, expected)
        results = [key for key, _ in outcome.values()]
        context.build_data_docs(resource_identifiers=[*results, *changed], build_index=False)
        reports = {table: (result, _page(context, key)) for table, (key, result) in outcome.items()}
        for table, (result, page) in reports.items():
            _finish(_file(page), partial(_in_our_words, passed[table], _warnings(result)))
        for key, mark in changed.items():
            _finish(_suite_page(folder, key.name), end=mark)
        write_index(folder / DOCS, [_file(page) for _, page in reports.values()])
        return reports


def index_page(folder: Path) -> str | None:
    """The address of the page that lists all runs; None before the first one."""
    page = folder / DOCS / INDEX
    return page.as_uri() if page.exists() else None


def remove_reports(folder: Path, named: Collection[str], before: datetime) -> tuple[int, int]:
    """Remove the pages and results of runs before a moment, but those whose addresses are `named`; returns files and bytes.

    The index then lists those that are left.
    """
    mark = f"/{_PAGES}/"
    kept = {unquote(address).rpartition(mark)[2].removesuffix(".html") for address in named if mark in unquote(address)}
    removed: list[int] = []
    with _locked(folder):
        for root, kind in ((folder / _PAGES, ".html"), (folder / "gx/validations", ".json")):
            for file in [file for file in root.rglob(f"*{kind}") if file.stat().st_mtime < before.timestamp()]:
                place = file.relative_to(root).as_posix().removesuffix(kind)
                if place in kept:
                    continue
                removed.append(file.stat().st_size)
                file.unlink()
                _remove_empty(file.parent, root)
        if removed and index_page(folder):
            write_index(folder / DOCS)
    return len(removed), sum(removed)


def _remove_empty(folder: Path, root: Path) -> None:
    while folder != root and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent


def import_great_expectations() -> ModuleType:
    """GX, imported when it is needed (3 s of processor time) and without what gates do not use."""
    logging.getLogger("great_expectations").setLevel(logging.WARNING)
    hidden = [name for name in _UNUSED if name not in sys.modules]
    blocked: dict[str, Any] = dict.fromkeys(hidden)  # None in sys.modules: an import fails at once
    sys.modules.update(blocked)
    sys.meta_path.insert(0, late := _LateFinder())
    try:
        import great_expectations as gx
    finally:
        sys.meta_path.remove(late)
        for name in hidden:
            del sys.modules[name]
    return gx


class _LateFinder(MetaPathFinder):
    """Finds modules that are loaded at their first use, not when they are imported."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """As Python finds it, but late; None for any other module."""
        found = PathFinder.find_spec(fullname, path, target) if fullname in _LATE else None
        if found and found.loader:
            found.loader = LazyLoader(found.loader)
        return found


def _page(context: Any, key: Any) -> str:
    url: str = context.get_docs_sites_urls(resource_identifier=key, only_if_exists=False)[0]["site_url"]
    return url.replace("/gx/../", "/")


def _mark(gx: ModuleType, suite: Suite) -> str:
    """What the page of a suite ends with as long as the page would be the same: to make it takes longer than to judge the table."""
    told = json.dumps(suite.expectations) + styles() + gx.__version__
    return f"<!-- {hashlib.sha256(told.encode()).hexdigest()} -->"


def _suite_page(folder: Path, table: str) -> Path:
    """Where GX puts the page of a suite; to ask GX takes as long as to judge a small table."""
    return folder / DOCS / "expectations" / f"{table.replace('.', '/')}.html"


def _ends_with(file: Path, mark: str) -> bool:
    """Whether there is a page that ends with a mark."""
    return file.exists() and file.read_text(encoding="utf-8").endswith(mark)


def _passed_words(result: "ExpectationSuiteValidationResult", suite: Suite, profile: Profile) -> str | None:
    """What the table's verdict is called if it passes, in the words of the page Quality: `passed, 1 warning`; None if it is closed."""
    failed = [each.expectation_config for each in result.results if each.success is not True]
    severities = {str(getattr(config.severity, "value", config.severity)) for config in failed if config}
    is_measured = all(config and config.kwargs["column"] in profile.values for config in failed)
    if len(result.results) != len(suite.expectations) or not is_measured or not severities <= {"warning", "info"}:
        return None
    return f"passed, {len(failed)} warning{'s' if len(failed) > 1 else ''}" if failed else "passed"


def _file(address: str) -> Path:
    return Path(unquote(urlsplit(address).path))


def _finish(file: Path, change: Callable[[str], str] = lambda page: page, end: str = "") -> None:
    """Make a page of GX one that works by itself; `change` says what else it should say, and `end` comes last."""
    file.write_text(change(cut_off_the_web(file.read_text(encoding="utf-8"))) + end, encoding="utf-8")


def _warnings(result: "ExpectationSuiteValidationResult") -> list[str]:
    """The sentences of the expectations that are not met and do not close the gate."""
    failed = [each.expectation_config for each in result.results if each.success is not True]
    return [
        str(config.description) for config in failed if config and str(getattr(config.severity, "value", config.severity)) != "critical"
    ]


def _in_our_words(passed: str | None, warnings: Sequence[str], page: str) -> str:
    """A report with the verdict in place of GX's word in its head, and with warnings that are called so."""

    def mark(row: re.Match[str]) -> str:
        says = " ".join(unescape(_TAG.sub(" ", row[0])).split())
        return row[0].replace(_FAILED, _WARNED) if any(" ".join(each.split()) in says for each in warnings) else row[0]

    return _ROW.sub(mark, _with_status(passed, page))


def _with_status(passed: str | None, page: str) -> str:
    colour = "text-danger" if passed is None else "text-success" if passed == "passed" else "text-warning"
    icon = "fa-times" if passed is None else "fa-check-circle" if passed == "passed" else "fa-exclamation-circle"
    status = f'\\1<i class="fas {icon} {colour}" aria-hidden="true"></i> <span class="{colour}">{passed or "CLOSED"}</span>'
    return _STATUS.sub(status, page, count=1)


def _judge(context: Any, suite: Any, run: Any) -> tuple[Any, "ExpectationSuiteValidationResult"]:
    """GX's result for the profile of a table, with the key under which it is stored.

    A checkpoint would give the same, but it reads each suite from the store six times, to see that nobody changed it.
    """
    from great_expectations.data_context.types.resource_identifiers import ExpectationSuiteIdentifier, ValidationResultIdentifier

    batch = _batch(context, suite.name).get_batch()
    result = batch.validate(suite, result_format="SUMMARY")
    result.meta |= {"run_id": run, "validation_time": run.run_time}
    return ValidationResultIdentifier(ExpectationSuiteIdentifier(suite.name), run, result.batch_id), result


def _store(gx: ModuleType, context: Any, layer: str, suites: Mapping[str, Any]) -> None:
    """Store suites and the layer's checkpoint of them, with which anybody can judge the last profiles again."""
    definitions = [gx.ValidationDefinition(name=name, data=_batch(context, name), suite=suite) for name, suite in suites.items()]
    context.checkpoints.add_or_update(gx.Checkpoint(name=layer, validation_definitions=definitions, result_format="SUMMARY"))


def _batch(context: Any, table: str) -> Any:
    return context.data_sources.get(_SOURCE).get_asset(table).get_batch_definition(_BATCH)


def _write_profile(folder: Path, profile: Profile) -> None:
    """One row of measures. A measure without value has no column, and an expectation of a missing column fails."""
    file = folder / "profiles" / f"{profile.table}.csv"
    file.parent.mkdir(parents=True, exist_ok=True)
    with open(file, "w", newline="") as text:
        csv.writer(text).writerows((("measures", *profile.values), (len(profile.values), *profile.values.values())))


def _open_project(gx: ModuleType, folder: Path) -> tuple[Any, "ValidationResultsStore"]:
    """The project, its file written anew, and the store of its results.

    Adding assets through GX would write the file again for each of them. In this process the project knows the results of this run alone:
    to make the pages of some, GX lists all that its store has.
    """
    from great_expectations.data_context.store.validation_results_store import ValidationResultsStore

    assets = {
        file.stem: {
            "type": "csv",
            "id": _id(file.stem),
            "filepath_or_buffer": str(file),
            "batch_definitions": {_BATCH: {"id": _id(f"{file.stem} {_BATCH}"), "partitioner": None}},
        }
        for file in sorted((folder / "profiles").glob("*.csv"))
    }
    sources = {"fluent_datasources": {_SOURCE: {"type": "pandas", "id": _id(_SOURCE), "assets": assets}}}
    project, text = folder / "gx", PROJECT_FILE.read_text()
    project.mkdir(exist_ok=True)
    (project / PROJECT_FILE.name).write_text(text + yaml.dump(sources, Dumper=yaml.CSafeDumper))
    config = yaml.load(text, yaml.CSafeLoader)
    results = config["stores"][config["validation_results_store_name"]]
    stored = ValidationResultsStore(store_backend=dict(results["store_backend"]), runtime_environment={"root_directory": str(project)})
    results["store_backend"] = {"class_name": "InMemoryStoreBackend"}
    return gx.get_context(mode="file", context_root_dir=project, project_config=config), stored


def _id(name: str) -> str:
    """The same for the same name, so that what GX stored in earlier runs still refers to it."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"expectations/{name}"))


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """The gates of two layers may run at once, but share the project and the index page."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
