"""A real broker with listeners for SASL_SSL and for TLS with client certificates, of certificates made for it."""

import base64
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from include.stack import kafka
from include.stack.endpoints import HOST, claim_port, stack_folder
from include.stack.processes import start
from include.stack.shutdown import stop_parts
from tests.support.certificates import Authority

USER, PASSWORD = "ledger", "canary=pa$$'wd#9f"
_EXTRA = """\
sasl.enabled.mechanisms=SCRAM-SHA-512,SCRAM-SHA-256,PLAIN
listener.name.sasl_ssl.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_{user}="{password}";
listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
ssl.keystore.type=PEM
ssl.keystore.location={certificate}
ssl.truststore.type=PEM
ssl.truststore.location={authority}
listener.name.ssl.ssl.client.auth=required
"""


@dataclass(frozen=True)
class SecureBroker:
    """Where it listens: `sasl` and `tls` by the name of its certificate, `other_name` by one that is not in it."""

    folder: Path
    authority: Path
    stranger: Path
    client: Path
    sasl: str
    tls: str
    other_name: str

    def config(self, **values: str) -> Path:
        """A file of LEDGER_KAFKA_CONFIG; `sasl_password` stands for sasl.password. An empty value leaves a name out."""
        chosen = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
            "ssl.ca.location": str(self.authority),
            **{name.replace("_", "."): value for name, value in values.items()},
        }
        file = self.folder / f"{uuid.uuid4()}.properties"
        file.write_text("# how to log in\n" + "".join(f"{name}={value}\n" for name, value in chosen.items() if value))
        file.chmod(0o600)
        return file


@contextmanager
def secure_broker(home: Path) -> Iterator[SecureBroker]:
    """The broker while it runs; it has no topics."""
    folder = stack_folder(home) / "kafka"
    certificates = home.parent / "certificates"
    authority, stranger = Authority(certificates, "authority"), Authority(certificates, "stranger")
    certificate = authority.issue("localhost", host="localhost")
    client = authority.issue("client")
    folder.mkdir(parents=True, exist_ok=True)
    ports: dict[str, int | str] = {"host": HOST, "broker": claim_port(home, "kafka"), "controller": claim_port(home, "kafka_controller")}
    sasl, tls = claim_port(home, "kafka_sasl"), claim_port(home, "kafka_tls")
    text = kafka.CONFIG.format(**ports, data=folder / "data")
    plain = f"PLAINTEXT://{HOST}:{ports['broker']}"
    text = text.replace(f"\nlisteners={plain}", f"\nlisteners=SASL_SSL://{HOST}:{sasl},SSL://{HOST}:{tls},{plain}")
    text = text.replace("\nadvertised.listeners=", f"\nadvertised.listeners=SASL_SSL://localhost:{sasl},SSL://localhost:{tls},")
    text = text.replace("CONTROLLER:PLAINTEXT\n", "CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL,SSL:SSL\n")
    text += _EXTRA.format(user=USER, password=PASSWORD, certificate=certificate, authority=authority.file)
    config = folder / "server.properties"
    config.write_text(text)
    cluster = base64.urlsafe_b64encode(b"\x01" + uuid.uuid4().bytes[1:]).decode().rstrip("=")
    users = [word for name in ("SCRAM-SHA-512", "SCRAM-SHA-256") for word in ("--add-scram", f'{name}=[name={USER},password="{PASSWORD}"]')]
    command = [*kafka._java("-Xmx128m"), "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(config), *users]
    done = subprocess.run(command, env=kafka._environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    try:
        running = start(
            home, kafka.PART, [*kafka._java("-Xmx512m"), "kafka.Kafka", str(config)], kafka._environment(), kafka.log_file(home)
        )
        kafka.wait(home, running)
        yield SecureBroker(certificates, authority.file, stranger.file, client, f"localhost:{sasl}", f"localhost:{tls}", f"{HOST}:{sasl}")
    finally:
        stop_parts(home, None, lambda _: None)
