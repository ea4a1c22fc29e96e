"""What readers of a release see, as SQL: one view for each table, fixed at the version that the release names.

DuckDB's views take the warehouse from the variable `warehouse` where it is set, so that they can be read from another place.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC
from string import Template

from spark_jobs.lake.tables import CONTROL, CORRECTIONS, Table
from spark_jobs.releases import archive
from spark_jobs.releases.releases import Release
from spark_jobs.runtime import storage
from spark_jobs.runtime.settings import Settings
from spark_jobs.runtime.text import sql_text

_SPARK = Template("create or replace view $view as select $columns from delta.$path$where;\n")
_DUCKDB = Template(
    "create view $view as select $columns from delta_scan(coalesce(getvariable('warehouse'), $warehouse) || $place$version)$where;\n"
)
_RELEASE = Template("create view release as select cast($number as bigint) as release_id, timestamptz '$released_at' as released_at;\n")
_SCHEMA = Template("create schema $layer;\n")
_DATABASE = Template("create database if not exists $layer;\n")
_UPTO = Template(" where _batch <= $batch")


@dataclass(frozen=True)
class View:
    """A table as readers see it: its folder in the warehouse, and what of it.

    Without a version, it is the newest one at each query. Without columns, it is all of them. Of bronze, only batches up to `last_batch`.
    """

    name: str
    folder: str
    version: int | None = None
    columns: tuple[str, ...] = ()
    last_batch: int | None = None


def readable_control(settings: Settings) -> list[Table]:
    """The control tables that readers may see, as far as they exist. Corrections are left out: they hold values of persons."""
    return [table for table in CONTROL if table != CORRECTIONS and table.exists(settings)]


def find(settings: Settings, release: Release) -> list[View]:
    """The views of a release, and of the control tables, which are as they are at each query."""
    is_copy = archive.is_archived(settings, release.release_id)
    base = archive.folder(settings, release.release_id).relative_to(settings.warehouse).as_posix() + "/" if is_copy else ""
    released = [
        View(name, base + name.replace(".", "/"), None if is_copy else version, last_batch=release.last_batches.get(name))
        for name, version in sorted(release.versions.items())
    ]
    return released + [View(table.name, table.name.replace(".", "/"), columns=table.columns) for table in readable_control(settings)]


def in_duckdb(settings: Settings, release: Release) -> str:
    """A script that makes the views in an empty DuckDB database, and the view `release`, which names the release."""
    views = find(settings, release)
    released_at = release.released_at.astimezone(UTC).isoformat(" ")
    return "".join(
        [
            _RELEASE.substitute(number=release.release_id, released_at=released_at),
            *_layers(views, _SCHEMA, _name),
            *(
                _DUCKDB.substitute(
                    view=_names(view.name, _name),
                    columns=_columns(view, _name),
                    warehouse=sql_text(str(settings.warehouse).replace(storage.SCHEME, "s3://")),
                    place=sql_text(f"/{view.folder}"),
                    version="" if view.version is None else f", version => {view.version}",
                    where=_where(view),
                )
                for view in views
            ),
        ]
    )


def in_spark(settings: Settings, release: Release) -> str:
    """A script that makes the views in Spark SQL; it replaces those of another release."""
    views = find(settings, release)
    return "".join(
        [
            *_layers(views, _DATABASE, _spark_name),
            *(
                _SPARK.substitute(
                    view=_names(view.name, _spark_name),
                    columns=_columns(view, _spark_name),
                    path=_spark_name(f"{settings.warehouse}/{view.folder}" + ("" if view.version is None else f"@v{view.version}")),
                    where=_where(view),
                )
                for view in views
            ),
        ]
    )


def _layers(views: list[View], template: Template, quote: Callable[[str], str]) -> list[str]:
    return [template.substitute(layer=quote(layer)) for layer in sorted({view.name.partition(".")[0] for view in views})]


def _columns(view: View, quote: Callable[[str], str]) -> str:
    return ", ".join(map(quote, view.columns)) or "*"


def _where(view: View) -> str:
    return "" if view.last_batch is None else _UPTO.substitute(batch=view.last_batch)


def _names(name: str, quote: Callable[[str], str]) -> str:
    return ".".join(map(quote, name.split(".")))


def _name(name: str) -> str:
    return '"{}"'.format(name.replace('"', '""'))


def _spark_name(name: str) -> str:
    return "`{}`".format(name.replace("`", "``"))
