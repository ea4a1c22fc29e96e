"""Objects of S3, by bucket and name. Address and keys are those of the environment (runtime/storage.py puts in what is missing there).

Hadoop marks a folder by an object without content, whose name ends with a slash: it is passed over, here and by all who look for content.
"""

import io
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import fsspec
import obstore
from obstore.exceptions import AlreadyExistsError
from obstore.fsspec import FsspecStore
from obstore.store import S3Store


class _Files(FsspecStore):
    """Objects as the files of UPath. One is read whole: they are small, or needed whole."""

    protocol = "s3a"

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:  # type: ignore[override]
        return io.BytesIO(self.cat_file(path)) if mode == "rb" else super()._open(path, mode, **options)


def register() -> None:
    """Let UPath reach them, for addresses that begin with `s3a://`."""
    fsspec.register_implementation("s3a", _Files, clobber=True)


def list_folder(folder: str) -> Iterator[tuple[str, float]]:
    """The names in a folder, with the time of the last change of each; 0 for a folder in it."""
    store, key = _split(folder)
    found = obstore.list_with_delimiter(store, key)
    for each in found["objects"]:
        if each["path"] != key:
            yield each["path"].rpartition("/")[2], each["last_modified"].timestamp()
    for name in found["common_prefixes"]:
        yield name.rstrip("/").rpartition("/")[2], 0.0


def list_below(folder: str) -> Iterator[tuple[str, int]]:
    """Every object with content below a folder, by its name from there on, with its bytes."""
    store, key = _split(folder)
    for found in obstore.list(store, prefix=f"{key}/"):
        for each in found:
            if each["size"]:
                yield each["path"].removeprefix(f"{key}/"), each["size"]


def remove(folder: str) -> None:
    """Remove every object below a folder."""
    store, key = _split(folder)
    for found in obstore.list(store, prefix=f"{key}/"):
        obstore.delete(store, [each["path"] for each in found])


def copy(source: str, target: str) -> None:
    """Copy an object within its bucket."""
    store, key = _split(source)
    obstore.copy(store, key, _split(target)[1])


def create(file: str, content: bytes) -> None:
    """Write an object; one that is there stays as it is."""
    store, key = _split(file)
    with suppress(AlreadyExistsError):
        obstore.put(store, key, content, mode="create")


def _split(path: str) -> tuple[S3Store, str]:
    bucket, _, key = path.partition("/")
    return S3Store(bucket), key
