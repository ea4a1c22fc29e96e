"""A search for values in files: in their bytes, and in what Parquet and zip files hold."""

import io
import re
import zipfile
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

from spark_jobs.runtime import storage

_BLOCK = 16 * 2**20


class Search:
    """A search for some values, as UTF-8 and as JSON writes them in ASCII. `files` and `bytes` count what was looked at."""

    def __init__(self, values: Collection[str]) -> None:
        self.files, self.bytes = 0, 0
        forms = {form for value in values for form in (value, _in_json(value))}
        self._longest = max((len(form.encode()) for form in forms), default=1)
        self._pattern = re.compile(b"|".join(re.escape(form.encode()) for form in sorted(forms)) or rb"(?!)")

    def find(self, files: Iterable[Path]) -> list[Path]:
        """The files that hold one of the values. One that goes meanwhile is passed over."""
        return [file for file in files if self._holds(file)]

    def _holds(self, file: Path) -> bool:
        try:
            self.bytes += file.stat().st_size
            self.files += 1
            return any(map(self._pattern.search, self._parts(file)))
        except FileNotFoundError:
            return False

    def _parts(self, file: Path) -> Iterator[bytes]:
        with file.open("rb") as opened:
            end = b""
            while block := opened.read(_BLOCK):
                yield end + block
                end = block[-self._longest :]
        if file.suffix == ".parquet":
            with file.open("rb") as opened, parquet.ParquetFile(opened) as found:
                for batch in found.iter_batches():
                    yield from _buffers(batch)
        elif file.suffix == ".zip":
            with zipfile.ZipFile(io.BytesIO(file.read_bytes())) as found:
                yield from map(found.read, found.namelist())


def files_below(folders: Iterable[Path]) -> list[Path]:
    """Every file below some folders, each once; links are not followed."""
    return sorted({file for folder in folders for file in storage.files_below(folder)}, key=str)


def _buffers(batch: pa.RecordBatch) -> Iterator[bytes]:
    for column in batch.columns:
        for buffer in column.buffers():
            if buffer is not None:
                yield buffer.to_pybytes()


def _in_json(value: str) -> str:
    return "".join(char if ord(char) < 128 else f"\\u{ord(char):04x}" for char in value).replace('"', '\\"')
