"""Spark's own protocol, spoken by somebody who does not know the secret."""

import socket
import struct

_REQUEST, _RESPONSE = 3, 4


def _text(words: str) -> bytes:
    return struct.pack(">H", len(words)) + words.encode()


def is_answered(host: str, port: int, endpoint: str) -> bool:
    """Whether a process of Spark takes a serialised Java object (a string) for one of its endpoints from a stranger."""
    body = b"\x00\x01" + _text(host) + struct.pack(">i", 1) + _text(endpoint) + b"\xac\xed\x00\x05\x74" + _text("hello")
    header = struct.pack(">bqi", _REQUEST, 1, len(body))
    with socket.create_connection((host, port), timeout=10) as connection:
        connection.sendall(struct.pack(">q", 8 + len(header) + len(body)) + header + body)
        found = b""
        while len(found) < 9 and (more := connection.recv(4096)):
            found += more
    return found[8:9] == bytes([_RESPONSE])
