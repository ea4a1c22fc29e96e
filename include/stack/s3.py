"""On request: an S3 server (SeaweedFS) on loopback, in which the home keeps its warehouse and checkpoints from then on.

Its S3 port answers only requests that are signed with the keys of the home. SeaweedFS is four servers in one process, which speak to each
other by further ports. The HTTP of master and filer is off; the volumes serve objects only for a token of the process's own. What remains:
their gRPC asks for no login, so a user of this machine who speaks SeaweedFS' protocol can get at the objects, as at the topics of the
embedded Kafka. Their Unix sockets in /tmp, which carry the ports in their names, are for their owner alone.
"""

import json
import secrets
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import httpx
import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from include.stack.endpoints import HOST, claim_port, ports_of, secret, set_outside, stack_folder
from include.stack.processes import Running, find_part, start, wait_until
from spark_jobs.runtime.atomic_files import write_whole
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.settings import ROOT, Settings

PART = "s3"
BUCKET = "ledger"
PLACES = {"warehouse": f"s3a://{BUCKET}/warehouse", "checkpoints": f"s3a://{BUCKET}/checkpoints"}
REGION = "us-east-1"
READY_SECONDS = 60
PROGRAM = ROOT / ".venv/bin/weed"
# A port for each listener. One of 0 switches a listener off, which would else take a fixed port.
LISTENERS = {"s3": "s3.port", "s3-grpc": "s3.port.grpc"} | {
    f"s3-{server}{suffix}": f"{server}.port{suffix.replace('-', '.')}"
    for server in ("master", "volume", "filer")
    for suffix in ("", "-grpc")
}
_TOKEN_KEYS = ("SIGNING", "SIGNING_READ", "FILER_SIGNING", "FILER_SIGNING_READ")  # WEED_JWT_<name>_KEY


def own_url(home: Path) -> str | None:
    """Where the server of this home listens, or would listen after a start; None before the first one."""
    port = ports_of(home).get(PART)
    return f"http://{HOST}:{port}" if port else None


def keys_file(home: Path) -> Path:
    """The file with the keys, as JSON: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."""
    return _folder(home) / "keys.json"


def is_on(home: Path) -> bool:
    """Whether this home keeps its tables in S3: the server came up once, so that every `up` starts it."""
    return (_folder(home) / ".on").exists()


def refuse_other_storage(environ: Mapping[str, str], home: Path) -> None:
    """Refuse to switch S3 on in a home whose tables lie elsewhere, or with settings by which jobs would look elsewhere.

    Raises LedgerError with what was found, what was expected and what to do.
    """
    for name, own in (("LEDGER_WAREHOUSE", PLACES["warehouse"]), ("AWS_ENDPOINT_URL", own_url(home))):
        if other := set_outside(environ, name, own):
            raise LedgerError(f"found {name}={other}, expected none with an S3 server of our own: unset it, or run make up without WITH=s3")
    if not is_on(home) and (found := next((home / "warehouse").glob("*/*/_delta_log"), None)):
        raise LedgerError(
            f"found the table {found.parent}, expected no warehouse on disk before S3 is switched on: "
            "choose a new LEDGER_HOME, or run make up without WITH=s3"
        )


def launch(home: Path) -> Running | None:
    """Start the server, without waiting for it; None when it runs already."""
    if find_part(home, PART):
        return None
    folder = stack_folder(home) / PART
    (folder / "data").mkdir(parents=True, exist_ok=True)
    return start(home, PART, _command(home), _environment(home), log_file(home))


def wait(home: Path, started: Running) -> None:
    """Return when the bucket is there and can be written; raises LedgerError when the server does not come up."""
    wait_until(lambda: answers(home), [started], READY_SECONDS)
    (_folder(home) / ".on").touch()


def answers(home: Path) -> bool:
    """Whether the server refuses who has no keys, and takes an object of who has them; makes the bucket if it is missing."""
    url = own_url(home) or ""
    keys = _keys(home)
    store = S3Store(
        BUCKET,
        endpoint=url,
        region=REGION,
        access_key_id=keys["AWS_ACCESS_KEY_ID"],
        secret_access_key=keys["AWS_SECRET_ACCESS_KEY"],
        client_options={"allow_http": True, "timeout": "5s"},
        retry_config={"max_retries": 0},
    )
    probe = ".stack/ready"
    try:
        with httpx.Client(trust_env=False, timeout=5) as client:
            if client.get(url).status_code != httpx.codes.FORBIDDEN:
                return False
            made = client.put(obstore.sign(store, "PUT", "", timedelta(minutes=1)))
        if made.status_code not in (httpx.codes.OK, httpx.codes.CONFLICT):
            return False
        obstore.put(store, probe, b"ready")
        return bytes(obstore.get(store, probe).bytes()) == b"ready"
    except (httpx.HTTPError, BaseError, OSError):
        return False


def addresses(home: Path) -> dict[str, str]:
    """What jobs of this home must know: where tables and checkpoints are, and where the keys lie."""
    # Leases of objects are in Postgres, so one host counts as several.
    return {**PLACES, "hosts": "several", "s3_endpoint": own_url(home) or "", "s3_keys_file": str(keys_file(home))}


def environment(home: Path, settings: Settings | None = None) -> dict[str, str]:
    """The variables by which clients of S3 reach the server, keys included; none where `settings` name another warehouse."""
    if not is_on(home) or (settings and str(settings.warehouse) != PLACES["warehouse"]):
        return {}
    return {**_keys(home), "AWS_ENDPOINT_URL": own_url(home) or "", "AWS_REGION": REGION, "AWS_ALLOW_HTTP": "true"}


def remove_sockets(home: Path) -> None:
    """Remove the Unix sockets that the server of this home, which has just ended, left in /tmp."""
    for name in LISTENERS:
        for socket in Path("/").glob(f"tmp/seaweedfs-*-{ports_of(home).get(name)}.sock"):
            with suppress(OSError):
                socket.unlink()


def log_file(home: Path) -> Path:
    """What the server says."""
    return _folder(home) / "s3.log"


def _folder(home: Path) -> Path:
    return home / "stack" / PART


def _keys(home: Path) -> dict[str, str]:
    """The keys of this home, drawn the first time."""

    def draw() -> str:
        return json.dumps({"AWS_ACCESS_KEY_ID": secrets.token_hex(10).upper(), "AWS_SECRET_ACCESS_KEY": secrets.token_urlsafe(30)})

    return dict(json.loads(secret(keys_file(home), draw)))


def _command(home: Path) -> list[str]:
    folder, keys = _folder(home), _keys(home)
    credentials = {"accessKey": keys["AWS_ACCESS_KEY_ID"], "secretKey": keys["AWS_SECRET_ACCESS_KEY"]}
    identity = {"name": BUCKET, "credentials": [credentials], "actions": ["Admin", "Read", "Write", "List", "Tagging"]}
    write_whole(folder / "identities.json", json.dumps({"identities": [identity]}))
    ports = [word for name, option in LISTENERS.items() for word in (f"-{option}", str(claim_port(home, name)))]
    return [
        *(str(PROGRAM), "-logtostderr=true", "server", "-dir", str(folder / "data"), "-ip", HOST, "-ip.bind", HOST, "-s3.ip.bind", HOST),
        *("-filer", "-s3", "-s3.config", str(folder / "identities.json"), *ports, "-s3.port.iceberg", "0", "-s3.port.lance", "0"),
        *("-disableHttp", "-filer.disableHttp", "-master.telemetry=false", "-s3.autoCreateBucket=false"),
        *("-master.volumeSizeLimitMB", "512", "-volume.max", "0"),  # as many volumes of this size as the disk has room for
        *(
            "-volume.preStopSeconds",
            "0",
            "-master.electionTimeout",
            "1s",
            "-master.heartbeatInterval",
            "100ms",
        ),  # alone, it waits for nobody
    ]


def _environment(home: Path) -> dict[str, str]:
    """What the server must know. Its home is its own folder: another's .seaweedfs would change its settings."""
    keys = json.loads(secret(_folder(home) / "tokens.json", lambda: json.dumps({name: secrets.token_hex(32) for name in _TOKEN_KEYS})))
    return {"PATH": "/usr/bin:/bin", "HOME": str(_folder(home)), **{f"WEED_JWT_{name}_KEY": keys[name] for name in _TOKEN_KEYS}}
