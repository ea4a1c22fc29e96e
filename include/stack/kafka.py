"""The embedded Kafka: one real broker, KRaft mode, on loopback."""

import base64
import os
import shutil
import subprocess
import uuid
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from include.stack.endpoints import HOST, claim_port, ports_of, stack_folder
from include.stack.processes import Running, find_part, start, wait_until
from spark_jobs.kafka.clients import client_config
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.kafka_config import Broker
from spark_jobs.runtime.settings import ROOT

PART = "kafka"
READY_SECONDS = 90
CONFIG = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller}
listeners=PLAINTEXT://{host}:{broker},CONTROLLER://{host}:{controller}
advertised.listeners=PLAINTEXT://{host}:{broker}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
auto.create.topics.enable=false
group.initial.rebalance.delay.ms=0
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
message.max.bytes=12582912
replica.fetch.max.bytes=12582912
log.retention.hours=720
log.cleaner.dedupe.buffer.size=16777216
"""


def own_bootstrap(home: Path) -> str | None:
    """Where the broker of this home listens, or would listen after a start; None before the first one."""
    port = ports_of(home).get("kafka")
    return f"{HOST}:{port}" if port else None


def launch(home: Path) -> Running | None:
    """Start the broker, without waiting for it; None when it runs already."""
    if find_part(home, PART):
        return None
    folder = stack_folder(home) / "kafka"
    folder.mkdir(exist_ok=True)
    ports: dict[str, int | str] = {"host": HOST, "broker": claim_port(home, "kafka"), "controller": claim_port(home, "kafka_controller")}
    config, data = folder / "server.properties", folder / "data"
    if not data.exists():
        _format(config, ports, folder / "data.new")
        (folder / "data.new").rename(data)
    config.write_text(CONFIG.format(**ports, data=data))
    return start(home, PART, [*_java("-Xmx512m"), "kafka.Kafka", str(config)], _environment(), log_file(home))


def wait(home: Path, started: Running) -> None:
    """Return when the broker answers; raises LedgerError when it does not come up."""
    broker = Broker(own_bootstrap(home) or "")
    wait_until(lambda: answers(broker, 2), [started], READY_SECONDS)


def answers(broker: Broker, patience: float) -> bool:
    """Whether a broker answers a request."""
    try:
        AdminClient(client_config(broker) | {"log_level": 0}, logger=None).list_topics(timeout=patience)
    except KafkaException:
        return False
    return True


def log_file(home: Path) -> Path:
    """What the broker says."""
    return home / "stack/kafka/kafka.log"


def _format(config: Path, ports: dict[str, int | str], data: Path) -> None:
    """Make the folder of a new broker; an interrupted attempt is thrown away."""
    shutil.rmtree(data, ignore_errors=True)
    config.write_text(CONFIG.format(**ports, data=data))
    cluster = base64.urlsafe_b64encode(b"\x01" + uuid.uuid4().bytes[1:]).decode().rstrip("=")
    command = [*_java("-Xmx128m"), "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(config)]
    done = subprocess.run(command, env=_environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise LedgerError(f"Kafka's storage could not be made in {data}: {' | '.join(done.stdout.splitlines()[-3:])}")


def _java(heap: str) -> list[str]:
    home = os.environ.get("JAVA_HOME")
    log_settings = f"-Dlog4j2.configurationFile={ROOT / 'include/stack/kafka-log4j2.xml'}"
    # The quick compiler alone: a broker starts with half the processor time, and takes 200,000 records a second as before.
    how = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:+ExitOnOutOfMemoryError"]
    flags = [heap, *how, "-Djava.awt.headless=true", log_settings]
    return [f"{home}/bin/java" if home else "java", *flags, "-cp", f"{ROOT / '.jars/kafka'}/*"]


def _environment() -> dict[str, str]:
    return {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TZ", "JAVA_HOME") if name in os.environ}
