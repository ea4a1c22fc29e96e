"""Settings: read once from the environment, checked at start, frozen. Every entry point uses this module."""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path

from spark_jobs.runtime import storage
from spark_jobs.runtime.errors import SettingsError
from spark_jobs.runtime.kafka_config import Broker, read_kafka_config
from spark_jobs.runtime.masking import mask_url

ROOT = Path(__file__).resolve().parents[2]
CLUSTER_SECRET = "_SPARK_AUTH_SECRET"  # the variable that Spark's own processes read


@dataclass(frozen=True)
class Settings:
    """Where things are and how the pipeline behaves. Paths are absolute; broker and Postgres may be unknown.

    Warehouse and checkpoints may be in object storage (runtime/storage.py).
    """

    home: Path
    warehouse: Path
    checkpoints: Path
    kafka_bootstrap: str | None
    kafka_config: Path | None  # the file by which clients log in (runtime/kafka_config.py); none: plain text
    schema_registry_url: str | None
    postgres_url: str | None
    has_several_hosts: bool  # whether hosts share the warehouse: their leases, heartbeats and requests are in Postgres
    spark_master: str
    airflow_port: int | None
    allowed_lateness_seconds: int
    large_credit: Decimal
    freshness_seconds: int
    gate_seconds: int
    release_days: int
    alert_webhook: str | None = field(repr=False)  # it may hold a token
    alert_mail: tuple[str, ...]
    release_stale_minutes: int
    alert_debits: int  # within 10 minutes
    alert_money: Decimal  # of debits within 10 minutes
    alert_times: int  # the mean of the earlier debits
    alert_silence_days: int
    customer_wait_minutes: int  # for which a live transaction waits for its customer
    live_topics: bool  # whether live queries publish to Kafka, too
    live_lookups: bool  # whether live queries look accounts up in Postgres, too
    lookups_in_flight: int  # at a time
    spark_ui: bool  # whether drivers serve Spark's pages, on loopback only
    log_format: str  # `text`, or `json`
    bronze_applications: str  # `one` for all topics, or `each` topic its own

    @property
    def remote(self) -> list[Path]:
        """Which of warehouse and checkpoints are in object storage."""
        return [folder for folder in (self.warehouse, self.checkpoints) if storage.is_remote(folder)]

    @property
    def run_folder(self) -> Path:
        """Where processes leave what concerns their runs: heartbeats, requests, progress, sockets, output. Always on a disk."""
        return self.home / "checkpoints" if storage.is_remote(self.checkpoints) else self.checkpoints

    @property
    def quality(self) -> Path:
        """Where gates write their reports."""
        return self.home / "quality"

    def broker(self) -> Broker:
        """Kafka, and the login there; raises SettingsError when none are set and no stack is up."""
        if self.kafka_bootstrap is None:
            raise SettingsError(
                f"no Kafka broker: LEDGER_KAFKA_BOOTSTRAP is not set and no stack of {self.home} is up: run make up, or set it"
            )
        return Broker(self.kafka_bootstrap, self.kafka_config)

    def postgres(self) -> str:
        """The address of Postgres; raises SettingsError when none is known."""
        if self.postgres_url is None:
            raise SettingsError("no Postgres: LEDGER_POSTGRES_URL is not set and no stack is up: run make up, or set it")
        return self.postgres_url


def cluster_secret(settings: Settings, environ: Mapping[str, str] = os.environ) -> str | None:
    """The secret by which a driver enters its cluster: in the environment, or in a file where the cluster is the embedded one."""
    if given := environ.get(CLUSTER_SECRET):
        return given
    embedded = read_endpoints(settings.home)
    if embedded.get("spark_master") != settings.spark_master:
        return None
    try:
        return Path(embedded["spark_secret_file"]).read_text()
    except OSError:
        return None


def endpoints_file(home: Path) -> Path:
    """The file in which the embedded stack of a home says where its services listen."""
    return home / "stack" / "endpoints.json"


def read_settings(environ: Mapping[str, str] = os.environ) -> Settings:
    """Settings from environment variables; an empty variable counts as unset.

    A broker or Postgres that is not set is taken from the embedded stack of the same home, if it was started.
    Raises SettingsError naming every variable whose value cannot be used.
    """
    values = {name: text.strip() for name, text in environ.items() if name.startswith("LEDGER_") and text.strip()}
    wrong: list[str] = []

    def whole(name: str, default: str, least: int, most: int) -> int:
        text = values.get(name, default)
        if re.fullmatch(r"[0-9]{1,10}", text) and least <= int(text) <= most:
            return int(text)
        wrong.append(f"{name}: found {text!r}, expected a whole number from {least} to {most}")
        return least

    def money(name: str, default: str) -> Decimal:
        text = values.get(name, default)
        try:
            amount = Decimal(text)
            if amount.is_finite() and amount >= 0 and amount == round(amount, 2) and amount < 10**16:
                return amount
        except InvalidOperation:
            pass
        wrong.append(f"{name}: found {text!r}, expected an amount >= 0 with at most 2 decimals")
        return Decimal(0)

    def matching(name: str, default: str | None, pattern: str, expected: str) -> str | None:
        text = values.get(name, default)
        if text is not None and not re.fullmatch(pattern, text):
            wrong.append(f"{name}: found {mask_url(text)!r}, expected {expected}")
        return text

    home = _folder(values, "LEDGER_HOME", ROOT / ".ledger", wrong)
    embedded = read_endpoints(home)
    master = matching(
        "LEDGER_SPARK_MASTER",
        embedded.get("spark_master", "local[*,4]"),
        r"local(\[(\d+|\*)(,\d+)?\])?|spark://\S+|k8s://\S+|yarn",
        "a Spark master such as local[*,4] or spark://host:7077",
    )
    settings = Settings(
        home=home,
        warehouse=_place(values, "LEDGER_WAREHOUSE", embedded.get("warehouse", str(home / "warehouse")), wrong),
        checkpoints=_place(values, "LEDGER_CHECKPOINTS", embedded.get("checkpoints", str(home / "checkpoints")), wrong),
        kafka_bootstrap=matching(
            "LEDGER_KAFKA_BOOTSTRAP",
            embedded.get("kafka_bootstrap"),
            r"[\w.\-\[\]:]+:\d{1,5}(,[\w.\-\[\]:]+:\d{1,5})*",
            "host:port[,host:port...]",
        ),
        kafka_config=Path(values["LEDGER_KAFKA_CONFIG"]) if "LEDGER_KAFKA_CONFIG" in values else None,
        schema_registry_url=matching(
            "LEDGER_SCHEMA_REGISTRY_URL", None, r"https?://[^\s/@]+(/[^\s@]*)?", "http(s)://host[:port][/path], without a user"
        ),
        postgres_url=matching(
            "LEDGER_POSTGRES_URL", embedded.get("postgres_url"), r"postgres(ql)?://\S+", "postgresql://user@host:port/database"
        ),
        has_several_hosts=matching("LEDGER_HOSTS", embedded.get("hosts", "one"), r"one|several", "one, or several that share the warehouse")
        == "several",
        spark_master=master or "",
        airflow_port=whole("LEDGER_AIRFLOW_PORT", "0", 0, 65535) or None,
        allowed_lateness_seconds=whole("LEDGER_ALLOWED_LATENESS_SECONDS", "10", 0, 10**9),
        large_credit=money("LEDGER_LARGE_CREDIT", "50000"),
        freshness_seconds=whole("LEDGER_FRESHNESS_SECONDS", "86400", 1, 10**9),
        gate_seconds=whole("LEDGER_GATE_SECONDS", "600", 1, 86400),
        release_days=whole("LEDGER_RELEASE_DAYS", "7", 1, 3650),
        alert_webhook=values.get("LEDGER_ALERT_WEBHOOK"),
        alert_mail=_addresses(
            matching("LEDGER_ALERT_MAIL", "", r"([^@\s,]+@[^@\s,]+(\s*,\s*(?!$))?)*", "mail addresses, separated by commas") or ""
        ),
        log_format=matching("LEDGER_LOG_FORMAT", "text", r"text|json", "text or json") or "",
        bronze_applications=matching("LEDGER_BRONZE_APPLICATIONS", "one", r"one|each", "one (for all) or each (its own)") or "",
        live_topics=matching("LEDGER_LIVE_TOPICS", "off", r"on|off", "on or off") == "on",
        live_lookups=matching("LEDGER_LIVE_LOOKUPS", "off", r"on|off", "on or off") == "on",
        lookups_in_flight=whole("LEDGER_LOOKUPS_IN_FLIGHT", "50", 1, 1000),
        spark_ui=matching("LEDGER_SPARK_UI", "off", r"on|off", "on or off") == "on",
        alert_debits=whole("LEDGER_ALERT_DEBITS", "3", 1, 10**6),
        alert_money=money("LEDGER_ALERT_MONEY", "50000"),
        alert_times=whole("LEDGER_ALERT_TIMES", "5", 1, 10**6),
        alert_silence_days=whole("LEDGER_ALERT_SILENCE_DAYS", "30", 1, 3650),
        customer_wait_minutes=whole("LEDGER_CUSTOMER_WAIT_MINUTES", "60", 1, 10**6),
        release_stale_minutes=whole("LEDGER_RELEASE_STALE_MINUTES", "60", 0, 10**6),
    )
    if not re.fullmatch(r"https?://[^\s/]\S*", settings.alert_webhook or "http://none"):
        wrong.append("LEDGER_ALERT_WEBHOOK: found something else than an address, expected http(s)://host/path")  # it may hold a token
    wrong += _login(settings.kafka_config, values)
    wrong += _without_secret(settings, environ)
    wrong += _without_postgres(settings)
    if wrong:
        raise SettingsError("; ".join(wrong))
    _enter_storage(settings, embedded, environ)
    return settings


def _enter_storage(settings: Settings, embedded: Mapping[str, str], environ: Mapping[str, str]) -> None:
    """Make this process, if it is one whose settings are read, a client of the object storage in which the warehouse is."""
    if environ is os.environ and settings.remote:
        storage.enter(embedded if str(settings.warehouse) == embedded.get("warehouse") else {})


def _place(values: Mapping[str, str], name: str, default: str, wrong: list[str]) -> Path:
    """A folder on a disk or in object storage."""
    text = values.get(name, default)
    if not text.startswith(storage.SCHEME):
        return _folder(values, name, default, wrong, "a path, or s3a://bucket/folder")
    if not re.fullmatch(rf"{storage.SCHEME}[a-z0-9][a-z0-9.-]*(/[\w.=-]+)+/?", text):
        wrong.append(f"{name}: found {mask_url(text)!r}, expected s3a://bucket/folder, in letters, digits and - . _ =")
        return Path(default)
    return storage.place(text)


def _folder(
    values: Mapping[str, str], name: str, default: Path | str, wrong: list[str], expected: str = "the path of a local folder"
) -> Path:
    text = values.get(name, str(default))
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:/", text):  # a Path would take it for a folder of that name
        wrong.append(f"{name}: found {mask_url(text)!r}, expected {expected}")
    path = Path(text).expanduser().absolute()
    if found := re.search(r"[%\[\]]", str(path)):  # Delta's readers take % for an escape, and delta-rs cannot write below a [
        wrong.append(f"{name}: found {mask_url(str(path))!r}, expected a path without {found[0]}")
    return path


def _login(file: Path | None, values: Mapping[str, str]) -> list[str]:
    if file is None:
        return []
    if "LEDGER_KAFKA_BOOTSTRAP" not in values:
        return [
            "LEDGER_KAFKA_CONFIG: found no LEDGER_KAFKA_BOOTSTRAP with it, expected the broker to log in to: the embedded one has no login"
        ]
    try:
        read_kafka_config(file)
    except SettingsError as error:
        return [str(error)]
    return []


def _without_secret(settings: Settings, environ: Mapping[str, str]) -> list[str]:
    master = settings.spark_master
    if not master.startswith("spark://") or cluster_secret(settings, environ):
        return []
    return [f"LEDGER_SPARK_MASTER: found {master!r} and no {CLUSTER_SECRET}, expected the secret of that cluster there"]


def _without_postgres(settings: Settings) -> list[str]:
    if settings.remote and not settings.has_several_hosts:
        return [
            f"LEDGER_HOSTS: found one and {settings.remote[0]}, expected several: leases of a warehouse in object storage are in Postgres"
        ]
    if not settings.has_several_hosts or settings.postgres_url:
        return []
    return ["LEDGER_HOSTS: found several and no LEDGER_POSTGRES_URL, expected there the Postgres that these hosts share"]


def read_endpoints(home: Path) -> dict[str, str]:
    """What the embedded stack of a home wrote into `endpoints_file`; nothing where it is not up. Raises SettingsError for another text."""
    try:
        return dict(json.loads(endpoints_file(home).read_text()))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise SettingsError(f"{endpoints_file(home)} cannot be read ({error}): run make down and make up") from None


def _addresses(text: str) -> tuple[str, ...]:
    return tuple(address.strip() for address in text.split(",") if address.strip())
