"""History in CSV and Parquet files, as rows of texts in a stable order: files by name, then rows as they lie."""

import csv
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_jobs.bronze.imports.texts import Texts
from spark_jobs.runtime.errors import SettingsError, first_line
from spark_jobs.runtime.values import to_list

_KINDS = (".csv", ".parquet")
_LONGEST_FIELD = 2**24
_ROWS_AT_ONCE = 10_000


def find_files(path: Path) -> list[Path]:
    """The file, or all files of a folder and its folders in the order of their names.

    Names that begin with `.` or `_` are left out, as every reader of such folders does. Raises SettingsError when there is no
    file, or one that is neither CSV nor Parquet.
    """
    if not path.exists():
        raise SettingsError(f"--file: found no {path}, expected a CSV or Parquet file, or a folder of them")
    inner = sorted((file for file in path.rglob("*") if file.is_file()), key=lambda file: file.relative_to(path).parts)
    files = [path] if path.is_file() else [file for file in inner if not any(part[0] in "._" for part in file.relative_to(path).parts)]
    if not files:
        raise SettingsError(f"--file: found no file in {path}, expected CSV or Parquet files")
    if other := [file for file in files if file.suffix.lower() not in _KINDS]:
        raise SettingsError(f"--file: found {other[0]}, expected files that end in {' or '.join(_KINDS)} only")
    return files


def read_columns(file: Path) -> list[str]:
    """The names of a file's columns; raises SettingsError when it has none or cannot be read."""
    if file.suffix.lower() == ".csv":
        rows = _csv_rows(file)
        header = next(rows, None)
        if header is None:
            raise SettingsError(f"{file}: found an empty file, expected a line with the names of the columns")
        return header
    return [str(name) for name in _open_parquet(file).schema_arrow.names]


def read_rows(file: Path) -> Iterator[Texts]:
    """The rows of a file, without its header; an empty CSV cell is None. Bytes that are no UTF-8 become surrogates.

    Raises SettingsError where a row has not as many cells as there are columns, or cannot be read.
    """
    if file.suffix.lower() != ".csv":
        yield from _parquet_rows(file)
        return
    rows = _csv_rows(file)
    width = len(next(rows))
    for number, row in enumerate(rows, start=1):
        if len(row) != width:
            raise SettingsError(f"{file} row {number}: found {len(row)} cells, expected {width}, as its header has; nothing was written")
        yield [cell or None for cell in row]


def _csv_rows(file: Path) -> Iterator[list[str]]:
    """The rows of a CSV file, header included; blank lines are none."""
    csv.field_size_limit(_LONGEST_FIELD)
    try:
        with file.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as text:
            rows = csv.reader(text, strict=True)
            try:
                yield from filter(None, rows)
            except csv.Error as error:
                raise SettingsError(
                    f"{file} line {rows.line_num}: cannot be read as CSV ({error}), expected every quote to be closed; nothing was written"
                ) from None
    except OSError as error:
        raise SettingsError(f"{file} cannot be read ({error.strerror})") from None


def _parquet_rows(file: Path) -> Iterator[Texts]:
    opened = _open_parquet(file)
    try:
        for batch in opened.iter_batches(batch_size=_ROWS_AT_ONCE):
            yield from zip(*(_texts(column) for column in batch.columns), strict=True)
    except (pa.ArrowException, OSError) as error:
        raise SettingsError(f"{file}: cannot be read as Parquet ({first_line(error)}); nothing was written") from None


def _open_parquet(file: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(file)
    except (pa.ArrowException, OSError) as error:
        raise SettingsError(f"{file}: cannot be read as Parquet ({first_line(error)})") from None


def _texts(column: pa.Array) -> Sequence[str | None]:
    """A column as texts: numbers with all their digits, times in UTC, nested values as JSON."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _texts(column.cast(kind.value_type))
    if pa.types.is_nested(kind):
        return [None if value is None else json.dumps(value, default=str, ensure_ascii=False) for value in to_list(column)]
    if pa.types.is_timestamp(kind):
        column = pc.strftime(column.cast(pa.timestamp(kind.unit, "UTC")), "%Y-%m-%d %H:%M:%S")
    elif not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)):
        column = column.cast(pa.string())
    values = column.cast(pa.binary()).to_pylist()
    return [None if value is None else value.decode("utf-8", "surrogateescape") for value in values]
