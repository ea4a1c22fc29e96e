"""A broker of Kafka, and the file of LEDGER_KAFKA_CONFIG: how clients log in. It alone holds the secrets; all else names the file."""

import re
import stat
from pathlib import Path
from typing import NamedTuple

from spark_jobs.runtime.errors import SettingsError

SASL, TLS = "SASL_SSL", "SSL"
MECHANISMS = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
_LOGIN = ("sasl.mechanism", "sasl.username", "sasl.password")
_FILES = ("ssl.ca.location", "ssl.certificate.location")
REGISTRY_LOGIN = "schema.registry.basic.auth.user.info"  # user:password at LEDGER_SCHEMA_REGISTRY_URL
NAMES = ("security.protocol", *_LOGIN, *_FILES, REGISTRY_LOGIN)
_KEY = "-----BEGIN PRIVATE KEY-----"  # PKCS#8; Java 17 cannot read one that is encrypted as OpenSSL does it
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class Broker(NamedTuple):
    """Where a broker is (`host:port`, or several with commas), and the file by which clients log in; none: plain text."""

    servers: str
    login: Path | None = None

    def __str__(self) -> str:
        return self.servers


def read_kafka_config(file: Path) -> dict[str, str]:
    """The values of the file, by NAMES. Java's clients read the same file as `.properties`: what they would read otherwise is refused.

    Raises SettingsError, in one line without any value that may be a secret, for all that is wrong with the file at once.
    """
    try:
        mode, text = stat.S_IMODE(file.stat().st_mode), file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"LEDGER_KAFKA_CONFIG {file} cannot be read ({getattr(error, 'strerror', None) or 'no UTF-8'})") from None
    values, wrong = _values(text)
    if not re.fullmatch(r"/[^:{}$\s,]+", str(file)):
        wrong.append("found a path with one of : { } $ , or a blank, expected an absolute one without")
    if mode & _OTHERS:
        wrong.append(f"found mode {mode:04o}, expected 0600, since it holds secrets: chmod 600 {file}")
    if wrong := wrong or _missing(values):
        raise SettingsError(f"LEDGER_KAFKA_CONFIG {file}: {'; '.join(wrong)}")
    return values


def _values(text: str) -> tuple[dict[str, str], list[str]]:
    values: dict[str, str] = {}
    wrong = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip() or line.lstrip().startswith(("#", "!")):
            continue
        name, separator, value = line.partition("=")
        name, value = name.strip(), value.lstrip()
        if not separator or name not in NAMES or name in values:
            found = "a name that was there before" if name in values else "no name that is known"
            wrong.append(f"line {number}: found {found}, expected NAME=VALUE, each once, of {', '.join(NAMES)}")
        elif not value or value != value.rstrip() or not value.isascii() or not value.isprintable() or re.search(r'["\\]', value):
            wrong.append(f'line {number}: {name}: expected printable ASCII without " and \\, and no blank at the end')
        else:
            values[name] = value
    return values, wrong


def _missing(values: dict[str, str]) -> list[str]:
    """What is wrong with the values as a whole."""
    protocol = values.get("security.protocol")
    if protocol not in (SASL, TLS):
        return [f"security.protocol: found {protocol or 'none'}, expected {SASL} or {TLS}"]
    needed = ("ssl.ca.location", *(_LOGIN if protocol == SASL else ("ssl.certificate.location",)))
    wrong = [f"{name}: found none, expected it with {protocol}" for name in needed if name not in values]
    wrong += [f"{name}: found it, expected it with {SASL} only" for name in _LOGIN if protocol == TLS and name in values]
    if values.get("sasl.mechanism", MECHANISMS[0]) not in MECHANISMS:
        wrong.append(f"sasl.mechanism: found another, expected one of {', '.join(MECHANISMS)}")
    if REGISTRY_LOGIN in values and not re.fullmatch(r"[^:]+:.+", values[REGISTRY_LOGIN]):
        wrong.append(f"{REGISTRY_LOGIN}: found no : between two texts, expected user:password")
    for name in _FILES:
        path = Path(values.get(name, "/"))
        if name in values and not (path.is_absolute() and path.is_file()):
            wrong.append(f"{name}: found no file {path}, expected the absolute path of a PEM file")
        elif name in values and name == "ssl.certificate.location":
            wrong += _key_problems(path)
    return wrong


def _key_problems(path: Path) -> list[str]:
    """What is wrong with a file of a certificate and its key."""
    if (mode := stat.S_IMODE(path.stat().st_mode)) & _OTHERS:
        return [f"{path}: found mode {mode:04o}, expected 0600, since it holds a key: chmod 600 {path}"]
    if _KEY not in path.read_text(errors="replace"):
        return [f"{path}: found no line {_KEY}, expected the certificate and its key in PKCS#8, not encrypted"]
    return []
