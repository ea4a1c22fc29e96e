"""The registry's client: it logs in over TLS, and its failures are lines that hold no secret."""

import base64
import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from spark_jobs.kafka.clients import client_config
from spark_jobs.kafka.schema_registry import Registered, Registry
from spark_jobs.runtime.errors import LedgerError, SettingsError
from spark_jobs.runtime.kafka_config import REGISTRY_LOGIN
from spark_jobs.runtime.settings import Settings, read_settings
from tests.support.certificates import Authority
from tests.support.listeners import HOST, listening, port_of

LOGIN = "ledger:canary"
SCHEMAS = {
    "/schemas/ids/1": {"schema": "{}", "schemaType": "JSON"},
    "/schemas/ids/2": {"schema": '"A"', "references": [{"name": "B", "subject": "b", "version": 3}]},
    "/subjects/b/versions/3": {
        "subject": "b",
        "version": 3,
        "id": 9,
        "schema": '"B"',
        "references": [{"name": "C", "subject": "c", "version": 1}],
    },
    "/schemas/ids/6": {"schema": '"B"', "references": [{"name": "D", "subject": "d", "version": 1}]},
    "/subjects/d/versions/1": {
        "subject": "d",
        "version": 1,
        "id": 6,
        "schema": '"D"',
        "references": [{"name": "D", "subject": "d", "version": 1}],
    },
    "/schemas/ids/7": {"schema": {"no": "text"}},
    "/schemas/ids/8": [],
    "/subjects/c/versions/1": {"subject": "c", "version": 1, "id": 8, "schema": '"C"'},
}


class _Registry(BaseHTTPRequestHandler):
    """Answers as a registry does to whoever logs in."""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        is_known = self.headers["Authorization"] == f"Basic {base64.b64encode(LOGIN.encode()).decode()}"
        status = (
            401
            if not is_known
            else 500
            if path == "/schemas/ids/5"
            else 403
            if path == "/schemas/ids/3"
            else 200
            if path in SCHEMAS
            else 404
        )
        body = json.dumps(
            SCHEMAS.get(path)
            if status == 200
            else {"error_code": 40403 if status == 404 and not path.startswith("/none") else status, "message": f"no {path}"}
        ).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_request(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def serving(authority: Authority) -> Iterator[str]:
    server = ThreadingHTTPServer((HOST, 0), _Registry)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.issue("registry", "localhost"))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    with listening(server):
        yield f"https://localhost:{port_of(server)}"


def settings_of(folder: Path, url: str, login: str, authority: Path) -> Settings:
    file = folder / "kafka.properties"
    values = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "p", REGISTRY_LOGIN: login}
    file.write_text("".join(f"{name}={value}\n" for name, value in (values | {"ssl.ca.location": str(authority)}).items()))
    file.chmod(0o600)
    names = {"LEDGER_KAFKA_BOOTSTRAP": "b:1", "LEDGER_KAFKA_CONFIG": str(file), "LEDGER_SCHEMA_REGISTRY_URL": url}
    return read_settings({"LEDGER_HOME": str(folder / "home"), **names})


def test_schemas_come_with_those_that_they_name(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")
    with serving(authority) as url:
        registry = Registry(settings_of(tmp_path, url, LOGIN, authority.file))
        assert registry.find(1) == Registered("JSON", "{}", ())
        assert registry.find(2) == Registered("AVRO", '"A"', ('"C"', '"B"'))  # each after what it names itself
        assert [registry.find(number) for number in (4, 3, 2**31)] == [None, None, None]  # not there, not for us, none at all
        assert registry.find(6) == Registered("AVRO", '"B"', ('"D"',))  # which names itself: the check of schemas refuses it
        for number in (7, 8):
            with pytest.raises(ValueError, match="in the registry's answer, expected a schema"):
                registry.find(number)


def test_a_failure_is_a_line_without_a_secret(tmp_path: Path) -> None:
    authority, other = Authority(tmp_path, "authority"), Authority(tmp_path, "other")
    with serving(authority) as url:
        wrong = Registry(settings_of(tmp_path, url, "ledger:wrong-canary", authority.file))
        stranger = Registry(settings_of(tmp_path, url, LOGIN, other.file))
        right = Registry(settings_of(tmp_path, url, LOGIN, authority.file))
        for registry, number, found in (
            (wrong, 1, "HTTP 401"),
            (right, 5, "HTTP 500"),
            (stranger, 1, "ConnectError: .*CERTIFICATE_VERIFY"),
        ):
            with pytest.raises(
                LedgerError, match=f"^schema registry {url}.*: found {found}.*, expected schema {number}, which new"
            ) as error:
                registry.find(number)
            assert "canary" not in str(error.value)


def test_the_login_goes_to_the_registry_alone(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")
    settings = settings_of(tmp_path, "https://localhost:1/", LOGIN, authority.file)
    assert REGISTRY_LOGIN not in client_config(settings.broker())  # librdkafka refuses what it does not know
    assert "canary" not in repr(settings)
    with pytest.raises(SettingsError, match=r"LEDGER_SCHEMA_REGISTRY_URL: found .*, expected http\(s\)://host") as error:
        read_settings({"LEDGER_SCHEMA_REGISTRY_URL": "https://ledger:canary@host/"})
    assert "canary" not in str(error.value)
