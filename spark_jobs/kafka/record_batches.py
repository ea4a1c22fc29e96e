"""Kafka's record batches (format 2): their decoded size, and their records, one at a time.

However much a batch decodes to, at most one record of `MOST_BYTES` and one piece of `_PIECE` bytes are in memory.
The format: https://kafka.apache.org/42/implementation/message-format/
"""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import google_crc32c
import pyarrow as pa

MOST_BYTES = 32 * 2**20  # of one record: key, value and headers
_HEAD = struct.Struct(">qiibIhiqqqhii")
_SUMMED = 21  # from here on, after the checksum, a batch has one
_COMPRESSION, _APPENDED, _TRANSACTIONAL, _CONTROL = 0x07, 0x08, 0x10, 0x20
_NONE, _SNAPPY = 0, 2
_CODECS = {1: "gzip", 3: "lz4", 4: "zstd"}
_XERIAL, _XERIAL_HEAD = b"\x82SNAPPY\x00", 16  # Java's frame around blocks of Snappy
_ABORT = b"\x00\x00\x00\x00"  # a control record's key: version 0, type 0
_PIECE = 128 * 1024
_FEW = 64  # bytes that hold a record's offset

Headers = list[tuple[str, bytes | None]]
Read = Callable[[int], bytes]


@dataclass(frozen=True)
class Record:
    """A record: `size` is of all that it holds. One that is larger than MOST_BYTES is `too_large` and was not decoded."""

    offset: int
    size: int
    millis: int = 0
    key: bytes | None = None
    value: bytes | None = None
    headers: Headers | None = None

    @property
    def is_too_large(self) -> bool:
        """Whether a batch of bronze cannot hold it."""
        return self.size > MOST_BYTES


@dataclass(frozen=True)
class RecordBatch:
    """A record batch as Kafka keeps it: `payload` are its records, compressed by the codec in `attributes`."""

    first_offset: int
    last_offset: int
    attributes: int
    first_millis: int
    last_millis: int
    producer: int
    count: int
    payload: memoryview

    @property
    def is_control(self) -> bool:
        """Whether it is a transaction's marker."""
        return bool(self.attributes & _CONTROL)

    @property
    def is_abort(self) -> bool:
        """Whether the marker aborts its transaction."""
        return any(record.key == _ABORT for record in self.records())

    @property
    def is_transactional(self) -> bool:
        """Whether it belongs to a transaction."""
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def is_stamped(self) -> bool:
        """Whether the time of all its records is the broker's, `last_millis`."""
        return bool(self.attributes & _APPENDED)

    def decode(self, most: int) -> bytes | memoryview | None:
        """What its records decode to; None where that is more than so many bytes. Raises ValueError or OSError where it is damaged."""
        if self.attributes & _COMPRESSION == _NONE:
            return self.payload if len(self.payload) <= most else None
        read, pieces, size = self._decoder(), [], 0
        while piece := read(_PIECE):
            pieces.append(piece)
            size += len(piece)
            if size > most:
                return None
        return b"".join(pieces)

    def records(self) -> Iterator[Record]:
        """Its records in order. Raises ValueError where they cannot be decoded."""
        source = _Source(self._decoder())
        for _ in range(self.count):
            size = source.varint()
            if size > MOST_BYTES:
                start = source.take(_FEW)
                _, at = _varint(start, 1)
                delta, _ = _varint(start, at)
                source.skip(size - _FEW)
                yield Record(self.first_offset + delta, size)
            else:
                yield self._parse(source.take(size))

    def _parse(self, body: bytes) -> Record:
        after, at = _varint(body, 1)
        delta, at = _varint(body, at)
        key, at = _bytes(body, at)
        value, at = _bytes(body, at)
        count, at = _varint(body, at)
        names: list[str] = []
        contents: list[bytes | None] = []
        read_headers(body, at, count, names, contents)
        headers = list(zip(names, contents, strict=True))
        millis = self.last_millis if self.is_stamped else self.first_millis + after
        return Record(self.first_offset + delta, len(body), millis, key, value, headers or None)

    def _decoder(self) -> Read:
        """Reads the next bytes of the decoded records, at most so many; none at the end."""
        codec = self.attributes & _COMPRESSION
        if codec == _SNAPPY:
            return partial(_next_of, _unpack_snappy(self.payload), bytearray())
        if codec != _NONE and codec not in _CODECS:
            raise ValueError(f"offset {self.first_offset}: compression {codec} is unknown")
        payload = pa.BufferReader(pa.py_buffer(self.payload))
        read: Read = payload.read if codec == _NONE else pa.CompressedInputStream(payload, _CODECS[codec]).read
        return read


def split(answer: memoryview) -> Iterator[RecordBatch]:
    """The whole record batches of what a fetch brought; the last one may be cut off. Raises ValueError for a damaged or an older one."""
    at = 0
    while at + _HEAD.size <= len(answer):
        first, length, _, magic, checksum, attributes, last, first_millis, last_millis, producer, _, _, count = _HEAD.unpack_from(
            answer, at
        )
        if magic != 2:
            raise ValueError(f"offset {first}: found record format {magic}, expected 2 (Kafka 0.11 or later)")
        end = at + 12 + length
        if end > len(answer):
            return
        if google_crc32c.value(bytes(answer[at + _SUMMED : end])) != checksum:
            raise ValueError(f"offset {first}: the record batch is damaged, it does not have its checksum {checksum:#010x}")
        payload = answer[at + _HEAD.size : end]
        yield RecordBatch(first, first + last, attributes, first_millis, last_millis, producer, count, payload)
        at = end


def read_headers(data: bytes, at: int, count: int, names: list[str], contents: list[bytes | None]) -> int:
    """Add so many headers at a place; returns the place after them. Names are UTF-8; what is not is replaced, as by Java's consumer."""
    for _ in range(count):
        name, at = _bytes(data, at)
        content, at = _bytes(data, at)
        names.append((name or b"").decode(errors="replace"))
        contents.append(content)
    return at


class _Source:
    """Decoded bytes, taken piece by piece."""

    def __init__(self, read: Read) -> None:
        self._read, self._held, self._at = read, b"", 0

    def take(self, size: int) -> bytes:
        """The next bytes."""
        self._hold(size)
        self._at += size
        return self._held[self._at - size : self._at]

    def skip(self, size: int) -> None:
        """Leave out the next bytes, without holding them."""
        while size > 0:
            if self._at == len(self._held):
                self._hold(1)
            step = min(size, len(self._held) - self._at)
            self._at, size = self._at + step, size - step

    def varint(self) -> int:
        """The next number."""
        number = shift = 0
        while True:
            byte = self.take(1)[0]
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return (number >> 1) ^ -(number & 1)

    def _hold(self, size: int) -> None:
        """Have so many bytes at hand."""
        if (length := len(self._held) - self._at) >= size:
            return
        pieces = [self._held[self._at :]]
        while length < size:
            if not (piece := self._read(max(_PIECE, size - length))):
                raise ValueError("its records end too early")
            pieces.append(piece)
            length += len(piece)
        self._held, self._at = b"".join(pieces), 0


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag number at a place, and the place after it."""
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at


def _bytes(data: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = _varint(data, at)
    return (None, at) if size < 0 else (data[at : at + size], at + size)


def _unpack_snappy(payload: memoryview) -> Iterator[bytes]:
    """Snappy's blocks: many small ones in Java's frame, one without. A block is decoded whole, to at most 22 times its bytes."""
    codec = pa.Codec("snappy")
    if payload[: len(_XERIAL)] != _XERIAL:
        blocks = [payload]
    else:
        blocks, at = [], _XERIAL_HEAD
        while at < len(payload):
            (size,) = struct.unpack_from(">i", payload, at)
            blocks.append(payload[at + 4 : at + 4 + size])
            at += 4 + size
    for block in blocks:
        size = shift = at = 0
        while block[at] & 0x80:
            size, shift, at = size | (block[at] & 0x7F) << shift, shift + 7, at + 1
        size |= block[at] << shift
        yield codec.decompress(pa.py_buffer(block), size).to_pybytes()


def _next_of(blocks: Iterator[bytes], held: bytearray, size: int) -> bytes:
    while len(held) < size and (block := next(blocks, None)):
        held += block
    piece = bytes(held[:size])
    del held[:size]
    return piece
