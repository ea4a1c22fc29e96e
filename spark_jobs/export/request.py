"""What an export is asked to do: checked before anything starts."""

import argparse
import hashlib
import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from urllib.parse import unquote, urlsplit

from spark_jobs.lake.tables import BY_NAME
from spark_jobs.runtime import storage
from spark_jobs.runtime.errors import SettingsError
from spark_jobs.runtime.settings import Settings
from spark_jobs.runtime.times import ALWAYS, midnight, parse_range

_SPECIAL = "% * ? [ ] { } \\"  # to Spark they are patterns or escapes


@dataclass(frozen=True)
class Request:
    """Rows of `name` with their time in [start, end), to the folder `url`/`name`.

    Of a table of a release (the newest when `release` is None), or of a table in Postgres. `date_column` gives the time of its
    rows; without one, all rows belong to the day [start, end) of the export.
    """

    name: str
    url: str
    start: datetime
    end: datetime
    file_mb: int
    release: int | None = None
    is_postgres: bool = False
    date_column: str | None = None
    partition_column: str | None = None

    @property
    def folder(self) -> str:
        """Where the date folders lie: a path, or s3a://bucket/key."""
        return f"{self.url}/{self.name}"

    @property
    def lease(self) -> str:
        """The name of the lease of the folder: two exports into one folder would undo each other."""
        return f"export.{hashlib.sha256(self.folder.encode()).hexdigest()[:16]}"

    @property
    def is_endless(self) -> bool:
        """Whether rows of every time are asked for."""
        return (self.start, self.end) == ALWAYS

    @property
    def bucket(self) -> str | None:
        """The S3 bucket, if it is one."""
        return urlsplit(self.url).netloc if self.url.startswith("s3a://") else None


def check(options: argparse.Namespace, settings: Settings, now: datetime) -> Request:
    """The request of a command line; raises SettingsError where it makes none. `now` decides the day of an export without times."""
    url = _target(options.to, settings)
    if options.table is not None:
        return _of_release(options, url)
    settings.postgres()
    return _of_postgres(options, url, now)


def _of_release(options: argparse.Namespace, url: str) -> Request:
    name = options.table or ""
    if name not in BY_NAME:
        raise SettingsError(f"--table: found {name!r}, expected one of {', '.join(BY_NAME)}")
    if options.date_column or options.partition_column:
        raise SettingsError("--date-column and --partition-column are for --postgres: the time of a table is declared (see export.md)")
    if options.start is None or options.end is None:
        raise SettingsError("found no --start or no --end, expected both with --table: the first time, and the first one after the range")
    start, end = parse_range(options.start, options.end)
    return Request(name, url, start, end, options.file_mb, options.release)


def _of_postgres(options: argparse.Namespace, url: str, now: datetime) -> Request:
    name = options.postgres or ""
    if not re.fullmatch(r"\w+\.\w+", name):
        raise SettingsError(f"--postgres: found {name!r}, expected schema.table, each of letters, digits and underscores")
    if options.release is not None:
        raise SettingsError("--release is for --table: Postgres has no releases")
    if options.date_column is None:
        if options.start or options.end:
            raise SettingsError("--start and --end need --date-column with --postgres: the column that they are about")
        start = midnight(now.date())
        end = start + timedelta(days=1)
    else:
        start, end = parse_range(options.start, options.end)
    return Request(name, url, start, end, options.file_mb, None, True, options.date_column, options.partition_column)


def _target(text: str, settings: Settings) -> str:
    """s3a://bucket/key or an absolute path, without a slash at its end."""
    if "://" in text and not text.startswith("file://"):
        found = re.fullmatch(r"s3a?://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])((?:/[^/%*?#\[\]{}\\]+)*)/*", text)
        if found is None:  # not repeated: it may hold a key
            raise SettingsError(
                "--to: expected a folder, file:///folder or s3a://bucket/prefix (keys come from the environment), without %"
            )
        return _apart(settings, f"s3a://{found[1]}{found[2]}")
    path = Path(unquote(urlsplit(text).path) if text.startswith("file://") else text).expanduser().resolve()
    if re.search(r"[%*?\[\]{}\\]", str(path)):
        raise SettingsError(f"--to: found {str(path)!r}, expected a path without any of {_SPECIAL}")
    return _apart(settings, str(path))


def _apart(settings: Settings, target: str) -> str:
    places = (("the warehouse", settings.warehouse), ("the checkpoints", settings.checkpoints), ("LEDGER_HOME", settings.home))
    for name, own in places:
        if f"{target}/".startswith(f"{own if storage.is_remote(own) else own.resolve()}/"):
            raise SettingsError(f"--to: found {target}, which is inside {name} {own}: expected a folder apart from it")
    return target
