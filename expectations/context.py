"""The Great Expectations project of a pipeline: profiles in, validation results and Data Docs out.

Under its folder: `gx` (the project: suites, checkpoints, results; any GX 1.x can open it), `profiles` (the last measures of each
table, which the checkpoints read) and `data_docs` (the report of every run; start at index.html).
"""

import csv
import fcntl
import logging
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from expectations.profile import Profile
from expectations.suites import Suite

if TYPE_CHECKING:
    from great_expectations.core.expectation_validation_result import ExpectationSuiteValidationResult

PROJECT_FILE = Path(__file__).parent / "great_expectations.yml"
_UNUSED = ("pyspark", "sqlalchemy")  # both optional for GX: profiles are pandas frames, and leaving them out saves a quarter of the start


def validate(
    folder: Path, layer: str, measured: Sequence[tuple[Suite, Profile]], run_id: str, now: datetime
) -> dict[str, tuple["ExpectationSuiteValidationResult", str]]:
    """Run one checkpoint over the profiles of a layer: by table, GX's result and the address of its page in Data Docs.

    One process at a time; others wait. Raises whatever GX raises.
    """
    gx = _import_great_expectations()
    with _locked(folder):
        context = _open_project(gx, folder)
        definitions = [_define(gx, context, suite, _write_profile(folder, profile)) for suite, profile in measured]
        checkpoint = context.checkpoints.add_or_update(
            gx.Checkpoint(
                name=layer,
                validation_definitions=definitions,
                actions=[gx.checkpoint.UpdateDataDocsAction(name="data_docs")],
                result_format="SUMMARY",
            )
        )
        outcome = checkpoint.run(run_id=gx.RunIdentifier(run_name=run_id, run_time=now))
        return {
            result.suite_name: (result, context.get_docs_sites_urls(resource_identifier=key)[0]["site_url"])
            for key, result in outcome.run_results.items()
        }


def index_page(folder: Path) -> str:
    """The address of the page that lists all runs."""
    return (folder / "data_docs" / "index.html").as_uri()


def _define(gx: ModuleType, context: Any, suite: Suite, profile: Path) -> Any:
    stored = context.suites.add_or_update(gx.ExpectationSuite(name=suite.table, expectations=[*map(_with_notes, suite.expectations)]))
    asset = context.data_sources.get("profiles").add_csv_asset(suite.table, filepath_or_buffer=profile)
    batch = asset.add_batch_definition("profile")
    return context.validation_definitions.add_or_update(gx.ValidationDefinition(name=suite.table, data=batch, suite=stored))


def _with_notes(expectation: dict[str, Any]) -> dict[str, Any]:
    """The expectation with its SQL as a note, which Data Docs show."""
    meta = expectation.get("meta") or {}
    text = meta.get("sql") or meta.get("query") or ()
    lines = [text] if isinstance(text, str) else list(text)
    return expectation | {"meta": meta | {"notes": {"format": "string", "content": lines}}}


def _write_profile(folder: Path, profile: Profile) -> Path:
    """One row of measures. A measure without value has no column, and an expectation of a missing column fails."""
    file = folder / "profiles" / f"{profile.table}.csv"
    file.parent.mkdir(parents=True, exist_ok=True)
    with open(file, "w", newline="") as text:
        csv.writer(text).writerows((("measures", *profile.values), (len(profile.values), *profile.values.values())))
    return file


def _open_project(gx: ModuleType, folder: Path) -> Any:
    project = folder / "gx"
    project.mkdir(exist_ok=True)
    shutil.copyfile(PROJECT_FILE, project / "great_expectations.yml")  # anew: it also forgets the assets of other runs
    context = gx.get_context(mode="file", context_root_dir=project)
    context.data_sources.add_or_update_pandas("profiles")
    return context


def _import_great_expectations() -> ModuleType:
    """GX, imported when it is needed (5 to 8 s) and without what gates do not use."""
    os.environ["GX_ANALYTICS_ENABLED"] = "false"  # before the import: no gate calls out
    logging.getLogger("great_expectations").setLevel(logging.WARNING)
    hidden = [name for name in _UNUSED if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None: an import of it fails at once
    try:
        import great_expectations as gx
        import great_expectations.checkpoint
        from great_expectations.core import RunIdentifier
    finally:
        for name in hidden:
            del sys.modules[name]
    return gx


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """The gates of two layers may run at once, but share the project and the index page."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
