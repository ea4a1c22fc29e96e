"""Every client of Kafka against a real broker with TLS and SASL: right settings work, wrong ones say so, and no secret is anywhere."""

import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from include.producer.publish import publish
from include.producer.records import Message
from spark_jobs.kafka.fetches import Fetches
from spark_jobs.kafka.logins import check_login
from spark_jobs.kafka.offsets import open_consumer, read_topic
from spark_jobs.kafka.topics import PUBLISHED, ensure_topics
from spark_jobs.lake.tables import BRONZE_TRANSACTIONS, LIVE_TRANSACTIONS, ensure_tables
from spark_jobs.live.outbox import Outbox
from spark_jobs.runtime.errors import SettingsError
from spark_jobs.runtime.kafka_config import Broker
from spark_jobs.runtime.settings import ROOT, read_settings
from tests.support.certificates import Authority
from tests.support.ledger import Ledger, await_that
from tests.support.live_rows import fill
from tests.support.secure_broker import PASSWORD, USER, SecureBroker, secure_broker

pytestmark = pytest.mark.integration

SECRETS = (PASSWORD, PASSWORD.replace("'", "\\'"))
NO_LOGIN = dict.fromkeys(("sasl_mechanism", "sasl_username", "sasl_password"), "")
RECORDS = [Message("transactions", b"k%d" % number, b'{"n": %d}' % number) for number in range(50)]


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    with secure_broker(tmp_path_factory.mktemp("secure") / "home") as broker:
        ensure_topics(Broker(broker.sasl, broker.config()))
        yield broker


def wrong(secure: SecureBroker, case: str) -> tuple[str, Path, str]:
    """A broker and a file with one thing wrong, and what is said of it."""
    return {
        "password": (secure.sasl, secure.config(sasl_password="not-the-one"), f"refuses user {USER} (SCRAM-SHA-512)"),
        "plain password": (secure.sasl, secure.config(sasl_mechanism="PLAIN", sasl_password="other"), f"refuses user {USER} (PLAIN)"),
        "authority": (secure.sasl, secure.config(ssl_ca_location=str(secure.stranger)), "found a certificate that is not trusted"),
        "host": (secure.other_name, secure.config(), "found a certificate of another host, expected one of 127.0.0.1"),
        "no login": (secure.sasl, secure.config(sasl_mechanism="SCRAM-SHA-256", sasl_username="nobody"), "refuses user nobody"),
    }[case]


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"])
def test_every_client_of_python_logs_in(secure: SecureBroker, tmp_path: Path, mechanism: str) -> None:
    file = secure.config(sasl_mechanism=mechanism)
    settings = read_settings(
        {"LEDGER_HOME": str(tmp_path / "home"), "LEDGER_KAFKA_BOOTSTRAP": secure.sasl, "LEDGER_KAFKA_CONFIG": str(file)}
    )
    assert publish(Broker(secure.sasl, file), RECORDS).is_delivered  # waits for the leaders of the new topic
    before = sum(read_topic(settings, "transactions").ends.values())
    assert publish(Broker(secure.sasl, file), RECORDS).is_delivered
    present = read_topic(settings, "transactions")
    assert sum(present.ends.values()) == before + len(RECORDS)
    with Fetches(Broker(secure.sasl, file), "transactions") as fetches:
        stored = [batch for number, end in present.ends.items() if end for batch in fetches.batches(int(number), 0, end)]
        assert sum(batch.last_offset - batch.first_offset + 1 for batch in stored) == sum(present.ends.values())
    with open_consumer(settings) as consumer:
        assert "transactions" in consumer.list_topics(timeout=10).topics


def test_the_outbox_publishes_in_transactions(secure: SecureBroker, tmp_path: Path) -> None:
    settings = read_settings(
        {"LEDGER_HOME": str(tmp_path / "home"), "LEDGER_KAFKA_BOOTSTRAP": secure.sasl, "LEDGER_KAFKA_CONFIG": str(secure.config())}
    )
    ensure_tables(settings, [LIVE_TRANSACTIONS])
    rows = len(fill(settings, {0: 10, 1: 10}))
    assert Outbox(settings).publish(1) == rows
    assert Outbox(settings).publish(1) == 0  # it reads how far the first came
    assert sum(read_topic(settings, PUBLISHED.name).ends.values()) > 0


def test_a_client_certificate_is_enough(secure: SecureBroker, tmp_path: Path) -> None:
    file = secure.config(security_protocol="SSL", ssl_certificate_location=str(secure.client), **NO_LOGIN)
    check_login(Broker(secure.tls, file))
    assert publish(Broker(secure.tls, file), RECORDS).is_delivered
    run_bronze_and_search(secure, Ledger(tmp_path / "home", secure.tls), file)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "PLAIN"])
def test_bronze_logs_in_and_no_secret_is_found_anywhere(secure: SecureBroker, tmp_path: Path, mechanism: str) -> None:
    file = secure.config(sasl_mechanism=mechanism)
    assert publish(Broker(secure.sasl, file), RECORDS).is_delivered
    run_bronze_and_search(secure, Ledger(tmp_path / "home", secure.sasl), file)


def run_bronze_and_search(secure: SecureBroker, ledger: Ledger, file: Path) -> None:
    """Ingest, with Spark's pages and event log, and look for the secrets in all that this leaves and shows."""
    events, said = ledger.home.parent / "events", ledger.home.parent / "said"
    conf = ledger.home.parent / "conf"
    for folder in (events, conf):
        folder.mkdir()
    (conf / "spark-defaults.conf").write_text(f"spark.eventLog.enabled true\nspark.eventLog.dir {events.as_uri()}\n")
    more = {"LEDGER_KAFKA_CONFIG": str(file), "LEDGER_SPARK_UI": "on", "SPARK_CONF_DIR": str(conf)}
    shown: dict[str, bytes] = {}
    with ledger.running("--engine none bronze --only transactions", said, **more) as process:
        await_that(lambda: "Spark's pages: " in said.read_text() or process.poll() is not None, 90)
        await_that(lambda: taken(ledger) or process.poll() is not None)
        assert process.poll() is None, said.read_text()
        assert " stopped: " not in said.read_text(), said.read_text()
        page = said.read_text().partition("Spark's pages: ")[2].split()[0]
        for name in ("environment/", "StreamingQuery/", "SQL/", "jobs/"):
            with urllib.request.urlopen(f"{page}/{name}", timeout=30) as answer:
                shown[name] = answer.read()
        commands = {name: text for each in psutil.process_iter() for name, text in command_and_environment(each)}
        process.terminate()
        process.wait(180)
    assert process.returncode == 0, said.read_text()
    assert len(shown["environment/"]) > 10_000
    assert any(str(file).encode() in text.encode() for text in commands.values())  # the variable that names the file is seen
    written = {str(path): path.read_bytes() for root in (ledger.home, events, conf) for path in root.rglob("*") if path.is_file()}
    assert any("events" in name for name in written)
    assert any("checkpoints" in name for name in written)
    written["said"] = said.read_bytes()
    everything = {**shown, **written, **{name: text.encode() for name, text in commands.items()}}
    assert [name for name, text in everything.items() for secret in SECRETS if secret.encode() in text] == []


def taken(ledger: Ledger) -> bool:
    return ledger.exists(BRONZE_TRANSACTIONS) and bool(ledger.rows(BRONZE_TRANSACTIONS))


def command_and_environment(process: psutil.Process) -> Iterator[tuple[str, str]]:
    """What others see of a process, under two names."""
    with suppress(psutil.Error, OSError):
        yield f"{process.pid} cmdline", "\0".join(process.cmdline())
        yield f"{process.pid} environ", "\0".join(f"{name}={text}" for name, text in process.environ().items())


@pytest.mark.parametrize("case", ["password", "plain password", "authority", "host", "no login"])
def test_what_is_wrong_is_said_in_one_line(secure: SecureBroker, case: str) -> None:
    bootstrap, file, expected = wrong(secure, case)
    with pytest.raises(SettingsError) as raised:
        ensure_topics(Broker(bootstrap, file))
    said = str(raised.value)
    assert expected in said
    assert "expected" in said
    assert str(file) in said
    assert "\n" not in said
    assert all(secret not in said for secret in (*SECRETS, "not-the-one"))


@pytest.mark.parametrize("case", ["password", "authority", "host"])
@pytest.mark.parametrize("command", ["producer", "bronze"])
def test_a_command_ends_with_that_line_and_exit_code_2(secure: SecureBroker, tmp_path: Path, case: str, command: str) -> None:
    bootstrap, file, expected = wrong(secure, case)
    words = {
        "producer": ["-m", "include.producer", "generate", "--transactions", "5"],
        "bronze": ["-m", "spark_jobs.run", "bronze", "--available-now", "--only", "transactions"],
    }[command]
    environment = Ledger(tmp_path / "home", bootstrap).environment(LEDGER_KAFKA_CONFIG=str(file))
    done = subprocess.run([sys.executable, *words], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2, done.stderr
    lines = [line for line in done.stderr.splitlines() if expected in line]
    assert len(lines) == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert all(secret not in done.stdout + done.stderr for secret in (*SECRETS, "not-the-one"))


def test_a_client_certificate_of_a_stranger_is_refused(secure: SecureBroker) -> None:
    foreign = Authority(secure.folder / "foreign", "foreign").issue("client")
    file = secure.config(security_protocol="SSL", ssl_certificate_location=str(foreign), **NO_LOGIN)
    with pytest.raises(SettingsError, match=r"found no TLS connection .*ssl\.certificate\.location"):
        check_login(Broker(secure.tls, file))
