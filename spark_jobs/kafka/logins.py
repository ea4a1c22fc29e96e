"""A connection to a broker that has logged in: TLS, then SASL. For what no client library does, and to say why a broker refuses.

Kafka: https://kafka.apache.org/42/design/protocol/#sasl-handshake; SCRAM: RFC 5802 and 7677.
"""

import base64
import hmac
import secrets
import socket
import ssl
import struct
from collections.abc import Iterator
from hashlib import new, pbkdf2_hmac
from pathlib import Path

from spark_jobs.runtime.errors import SettingsError
from spark_jobs.runtime.kafka_config import SASL, Broker, read_kafka_config

SECONDS = 15
_CLIENT = b"ledger"
_HANDSHAKE, _VERSIONS, _AUTHENTICATE = (17, 1), (18, 0), (36, 0)  # API, version
_OTHER_HOST = (62, 64)  # OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH
_NO_SUCH_MECHANISM = 33


class _Refused(Exception):
    """The broker does not let this user in."""


def connect(address: tuple[str, int], login: Path | None, seconds: float = SECONDS) -> socket.socket:
    """A connection on which requests can be sent; `login` is the file of LEDGER_KAFKA_CONFIG, None for plain text.

    Raises SettingsError where certificates or the login do not fit, OSError where the broker does not answer.
    """
    connection = socket.create_connection(address, seconds)
    if login is None:
        return connection
    values, place = read_kafka_config(login), f"Kafka at {address[0]}:{address[1]}"
    try:
        connection = _context(values).wrap_socket(connection, server_hostname=address[0])
        if values["security.protocol"] == SASL:
            _log_in(connection, values)
        else:
            _ask(connection, _VERSIONS, b"")  # only the first answer says that our certificate is refused
    except (ssl.SSLError, _Refused) as error:
        connection.close()
        raise SettingsError(f"{place}: {_what(error, address[0], values)} (LEDGER_KAFKA_CONFIG {login})") from None
    except BaseException:
        connection.close()
        raise
    return connection


def check_login(broker: Broker) -> None:
    """Raise SettingsError, in one line, when a broker that answers refuses the login or is not trusted; one that is away is neither."""
    if broker.login is None:
        return
    for host, port in _addresses(broker.servers):
        try:
            connect((host, port), broker.login).close()
            return
        except OSError:
            continue


def receive(connection: socket.socket, size: int) -> memoryview:
    """The next bytes of a connection."""
    buffer = memoryview(bytearray(size))
    filled = 0
    while filled < size:
        if not (count := connection.recv_into(buffer[filled:])):
            raise ConnectionError("the broker has closed the connection")
        filled += count
    return buffer


def _addresses(servers: str) -> Iterator[tuple[str, int]]:
    for server in servers.split(","):
        host, _, port = server.rpartition(":")
        yield host.strip("[]"), int(port)


def _context(values: dict[str, str]) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=values["ssl.ca.location"])
        if certificate := values.get("ssl.certificate.location"):
            context.load_cert_chain(certificate, password="")
    except (ssl.SSLError, OSError):
        raise _Refused(
            "found no PEM certificates in ssl.ca.location, or no certificate with its key in ssl.certificate.location, expected them"
        ) from None
    return context


def _what(error: Exception, host: str, values: dict[str, str]) -> str:
    """What is wrong, what was expected, what to do."""
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _OTHER_HOST:
            return f"found a certificate of another host, expected one of {host}: name the broker as its certificate does"
        return (
            f"found a certificate that is not trusted ({error.verify_message}), expected one that an authority of "
            f"{values['ssl.ca.location']} has signed: put that authority's certificate there"
        )
    if isinstance(error, ssl.SSLError):
        return f"found no TLS connection ({error.reason or 'closed'}), expected one: check the port, and ssl.certificate.location"
    return str(error)


def _log_in(connection: socket.socket, values: dict[str, str]) -> None:
    mechanism, user = values["sasl.mechanism"], values["sasl.username"]
    answer = _ask(connection, _HANDSHAKE, _text(mechanism.encode()))
    (error,) = struct.unpack_from(">h", answer)
    if error:
        found = "that mechanism is not enabled there" if error == _NO_SUCH_MECHANISM else f"Kafka's error {error}"
        raise _Refused(f"found no login by {mechanism} ({found}), expected it: check sasl.mechanism")
    if mechanism == "PLAIN":
        _authenticate(connection, f"\0{user}\0{values['sasl.password']}".encode(), mechanism, user)
        return
    _scram(connection, mechanism, user, values["sasl.password"])


def _scram(connection: socket.socket, mechanism: str, user: str, password: str) -> None:
    """Prove to the broker that we know the password, and let it prove the same; the password itself is never sent."""
    algorithm = mechanism.removeprefix("SCRAM-").replace("-", "").lower()

    def sign(key: bytes, text: str) -> bytes:
        return hmac.digest(key, text.encode(), algorithm)

    nonce = secrets.token_hex(16)
    first = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
    challenge = _authenticate(connection, f"n,,{first}".encode(), mechanism, user).decode()
    given = dict(part.split("=", 1) for part in challenge.split(","))
    if not given.get("r", "").startswith(nonce):
        raise _Refused(f"found an answer to another login by {mechanism}, expected one to ours: is it a broker?")
    salted = pbkdf2_hmac(algorithm, password.encode(), base64.b64decode(given["s"]), int(given["i"]))
    final = f"c=biws,r={given['r']}"
    text = f"{first},{challenge},{final}"
    key = sign(salted, "Client Key")
    signature = sign(new(algorithm, key).digest(), text)
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True))).decode()
    answer = _authenticate(connection, f"{final},p={proof}".encode(), mechanism, user)
    if not hmac.compare_digest(answer, b"v=" + base64.b64encode(sign(sign(salted, "Server Key"), text))):
        raise _Refused("found a broker that does not know this password, expected one that does: is it the right broker?")


def _authenticate(connection: socket.socket, sent: bytes, mechanism: str, user: str) -> bytes:
    try:
        answer = _ask(connection, _AUTHENTICATE, struct.pack(">i", len(sent)) + sent)
    except ConnectionError:
        answer = memoryview(b"\xff\xff")
    (error,) = struct.unpack_from(">h", answer)
    if error:
        raise _Refused(
            f"found that it refuses user {user} ({mechanism}), expected a login: check sasl.username, sasl.password and sasl.mechanism"
        )
    (size,) = struct.unpack_from(">h", answer, 2)  # of the message of an error, -1 for none
    at = 4 + max(size, 0)
    (size,) = struct.unpack_from(">i", answer, at)
    return bytes(answer[at + 4 : at + 4 + max(size, 0)])


def _ask(connection: socket.socket, api: tuple[int, int], body: bytes) -> memoryview:
    """Send a request; its answer, after the correlation id."""
    request = struct.pack(">hhi", *api, 0) + _text(_CLIENT) + body
    connection.sendall(struct.pack(">i", len(request)) + request)
    return receive(connection, *struct.unpack(">i", receive(connection, 4)))[4:]


def _text(text: bytes) -> bytes:
    return struct.pack(">h", len(text)) + text
