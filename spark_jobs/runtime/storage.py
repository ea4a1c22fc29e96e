"""Folders that lie on a disk or in object storage, and what a Path does not do alike in both.

A folder in object storage (`s3a://bucket/folder`) is a UPath, which does what a Path does. There an object appears whole or not at all,
but a folder is only the beginning of names: it cannot be renamed. So what must appear at once is copied, and one file of it comes last.
"""

import json
import os
import re
import shutil
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, cast

from spark_jobs.runtime.errors import SettingsError

if TYPE_CHECKING:
    from upath import UPath

SCHEME = "s3a://"


def place(text: str) -> Path:
    """The folder or file at a path, or at an address that begins with `s3a://`."""
    if not text.startswith(SCHEME):
        return Path(text)
    from upath import UPath  # most warehouses need neither

    from spark_jobs.runtime import objects

    objects.register()
    return cast(Path, UPath(text.rstrip("/")))


def is_remote(folder: Path) -> bool:
    """Whether a folder is in object storage."""
    return not isinstance(folder, Path)


def s3_access(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Hadoop's settings for AWS_ENDPOINT_URL and AWS_REGION. The keys are read by the JVM, and are in no setting of Spark.

    An endpoint other than Amazon's is asked for buckets by path. Raises SettingsError for one that is no address.
    """
    endpoint = environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL")
    if not re.fullmatch(r"https?://[^\s/@]+/?", endpoint or "http://none"):
        raise SettingsError("AWS_ENDPOINT_URL: found something else than an address, expected http(s)://host:port without a key")
    region = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or ("us-east-1" if endpoint else None)
    conf = {"fs.s3a.endpoint.region": region} if region else {}
    return conf | ({"fs.s3a.endpoint": endpoint, "fs.s3a.path.style.access": "true"} if endpoint else {})


def enter(embedded: Mapping[str, str]) -> None:
    """Put into the environment, which the clients of S3 read, what it lacks: the embedded server's address and keys, and what follows.

    Raises SettingsError for an address that is none.
    """
    if "s3_endpoint" in embedded and "AWS_ENDPOINT_URL" not in os.environ:
        os.environ |= {"AWS_ENDPOINT_URL": embedded["s3_endpoint"], **json.loads(Path(embedded["s3_keys_file"]).read_text())}
    access = s3_access()
    if region := access.get("fs.s3a.endpoint.region"):
        os.environ.setdefault("AWS_REGION", region)
    if address := access.get("fs.s3a.endpoint"):
        os.environ.setdefault("AWS_ENDPOINT_URL", address)
        os.environ.setdefault("AWS_ALLOW_HTTP", str(address.startswith("http://")).lower())


def is_below(file: Path, folder: Path) -> bool:
    """Whether a file is a folder, or below it; they may be in different places."""
    return f"{file}/".startswith(f"{folder}/")


def is_of_store(error: BaseException) -> bool:
    """Whether an error is what a client of object storage, in Python or in the JVM, says of the store."""
    return bool(re.search(r"Generic S3 error|org\.apache\.hadoop\.fs\.s3a\.", str(error)))


def names(folder: Path) -> dict[str, float]:
    """The names in a folder, with the time of the last change of each file. Nothing where there is no folder."""
    if is_remote(folder):
        from spark_jobs.runtime import objects

        return dict(objects.list_folder(_key(folder)))
    found = {}
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):  # it has gone meanwhile
                found[entry.name] = entry.stat().st_mtime
    return found


def files_below(folder: Path) -> dict[Path, int]:
    """Every file below a folder with its size in bytes; links are not followed, and in object storage empty files are none."""
    if is_remote(folder):
        from spark_jobs.runtime import objects

        return {folder / name: size for name, size in objects.list_below(_key(folder))}
    sizes = {}
    for file in folder.rglob("*"):
        with suppress(FileNotFoundError):
            if file.is_file() and not file.is_symlink():
                sizes[file] = file.stat().st_size
    return sizes


def remove(folder: Path) -> None:
    """Remove a folder with all that is in it, if it is there. On a disk, what cannot be removed stays."""
    if is_remote(folder):
        from spark_jobs.runtime import objects

        objects.remove(_key(folder))
    else:
        shutil.rmtree(folder, ignore_errors=True)


def copy(source: Path, target: Path, last: str = "") -> None:
    """Copy a folder with all that is in it to a new one of the same disk or bucket; in object storage, its file `last` comes last."""
    if is_remote(source):
        from spark_jobs.runtime import objects

        for name in sorted((name for name, _ in objects.list_below(_key(source))), key=lambda name: name == last):
            objects.copy(f"{_key(source)}/{name}", f"{_key(target)}/{name}")
    else:
        shutil.copytree(source, target)


def publish(draft: Path, target: Path, last: str) -> None:
    """Give a folder its name when all is in it. In object storage its file `last` comes last: without it there is none (`is_published`)."""
    if not is_remote(draft):
        draft.rename(target)
        return
    remove(target)  # of a process that died
    copy(draft, target, last)
    remove(draft)


def is_published(folder: Path, last: str) -> bool:
    """Whether a folder has been published, with `last` as its last file."""
    return (folder / last).exists() if is_remote(folder) else folder.is_dir()


def create(file: Path, text: str) -> None:
    """Write a file if there is none; of several writers, the first one writes it."""
    if is_remote(file):
        from spark_jobs.runtime import objects

        objects.create(_key(file), text.encode())
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f".{file.name}.{uuid.uuid4().hex}")
    draft.write_text(text)
    with suppress(FileExistsError):
        os.link(draft, file)
    draft.unlink()


def _key(folder: Path) -> str:
    """Bucket and name."""
    return cast("UPath", folder).path.rstrip("/")
