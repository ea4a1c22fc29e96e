"""The file of LEDGER_KAFKA_CONFIG: what is refused at start, without repeating a secret."""

import re
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.kafka.clients import client_config, spark_options
from spark_jobs.runtime.errors import SettingsError
from spark_jobs.runtime.kafka_config import Broker, read_kafka_config
from spark_jobs.runtime.settings import read_settings
from tests.support.certificates import Authority

GOOD = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "ledger",
    "sasl.password": "canary",
    "ssl.ca.location": "CA",
}


def written(folder: Path, mode: int = 0o600, more: str = "", **values: str) -> Path:
    authority, file = folder / "ca.pem", folder / "kafka.properties"
    authority.write_text("")
    chosen = GOOD | {name.replace("_", "."): text for name, text in values.items()}
    lines = [f"{name}={text.replace('CA', str(authority))}" for name, text in chosen.items() if text]
    file.write_text("# comment\n\n" + "\n".join(lines) + f"\n{more}")
    file.chmod(mode)
    return file


def test_what_clients_get_and_what_spark_sees(tmp_path: Path) -> None:
    file = written(tmp_path)
    assert client_config(Broker("b:1", file))["sasl.password"] == "canary"
    settings = read_settings({"LEDGER_KAFKA_BOOTSTRAP": "b:1", "LEDGER_KAFKA_CONFIG": str(file)})
    options = spark_options(settings.broker())
    assert f"${{file:{file}:sasl.password}}" in options["kafka.sasl.jaas.config"]
    assert "canary" not in repr(options) + repr(settings)


def test_without_a_file_clients_speak_plain_text() -> None:
    assert client_config(Broker("b:1")) == {"bootstrap.servers": "b:1"}
    assert spark_options(Broker("b:1")) == {"kafka.bootstrap.servers": "b:1"}


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_a_file_that_others_can_open_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(SettingsError, match=f"found mode {mode:04o}, expected 0600"):
        read_kafka_config(written(tmp_path, mode))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"more": "sasl.pasword=canary\n"}, "line 8: found no name that is known"),
        ({"more": "canary\n"}, "line 8: found no name that is known"),
        ({"more": "sasl.password=canary\n"}, "line 8: found a name that was there before"),
        ({"sasl_password": 'canary"; evil'}, "sasl.password: expected printable ASCII"),
        ({"sasl_password": "canary\\u0041"}, "sasl.password: expected printable ASCII"),
        ({"sasl_password": "canary "}, "no blank at the end"),
        ({"sasl_password": "canaryé"}, "sasl.password: expected printable ASCII"),
        ({"security_protocol": "SASL_PLAINTEXT"}, "security.protocol: found SASL_PLAINTEXT, expected SASL_SSL or SSL"),
        ({"security_protocol": "SSL"}, "ssl.certificate.location: found none, expected it with SSL"),
        ({"sasl_mechanism": "GSSAPI"}, "expected one of SCRAM-SHA-512, SCRAM-SHA-256, PLAIN"),
        ({"sasl_password": ""}, "sasl.password: found none, expected it with SASL_SSL"),
        ({"ssl_ca_location": ""}, "ssl.ca.location: found none"),
        ({"ssl_ca_location": "/no/such.pem"}, "ssl.ca.location: found no file /no/such.pem"),
    ],
)
def test_a_file_that_cannot_be_right_is_refused_without_its_secret(tmp_path: Path, change: dict[str, Any], expected: str) -> None:
    file = written(tmp_path, **change)
    with pytest.raises(SettingsError, match=re.escape(expected)) as raised:
        read_settings({"LEDGER_KAFKA_BOOTSTRAP": "b:1", "LEDGER_KAFKA_CONFIG": str(file)})
    assert "canary" not in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_file_needs_a_broker_and_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="found no LEDGER_KAFKA_BOOTSTRAP with it"):
        read_settings({"LEDGER_KAFKA_CONFIG": str(written(tmp_path))})
    with pytest.raises(SettingsError, match="cannot be read"):
        read_kafka_config(tmp_path / "none")


def test_a_key_must_be_private_and_readable_by_every_client(tmp_path: Path) -> None:
    certificates = Authority(tmp_path, "authority")
    client, locked = certificates.issue("client"), certificates.issue("locked", password="canary")
    assert read_kafka_config(written(tmp_path, ssl_certificate_location=str(client)))
    with pytest.raises(SettingsError, match="found no line -----BEGIN PRIVATE KEY-----, expected"):
        read_kafka_config(written(tmp_path, ssl_certificate_location=str(locked)))
    client.chmod(0o640)
    with pytest.raises(SettingsError, match=f"{client}: found mode 0640, expected 0600"):
        read_kafka_config(written(tmp_path, ssl_certificate_location=str(client)))
