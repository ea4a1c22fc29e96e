"""Where exports of tests go, a folder or an S3 bucket, and what a reader finds there."""

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
from moto.server import ThreadedMotoServer

BUCKET = "exports"
KEYS = {"AWS_ACCESS_KEY_ID": "AKIATEST", "AWS_SECRET_ACCESS_KEY": "canary-s3-4711"}
Days = dict[str, dict[str, pa.Table]]  # day -> file -> rows


class Place(Protocol):
    """A target."""

    url: str

    def files(self) -> dict[str, bytes]:
        """Every file by its path below the target, hidden ones included."""

    def put(self, path: str) -> None:
        """Write a file as another program would."""


class Folder:
    def __init__(self, path: Path) -> None:
        self.path, self.url = path, str(path)

    def files(self) -> dict[str, bytes]:
        return {str(file.relative_to(self.path)): file.read_bytes() for file in self.path.rglob("*") if file.is_file()}

    def put(self, path: str) -> None:
        (self.path / path).parent.mkdir(parents=True, exist_ok=True)
        (self.path / path).write_bytes(b"x")


class Bucket:
    def __init__(self, endpoint: str, prefix: str) -> None:
        self.url, self.prefix, self.endpoint = f"s3a://{BUCKET}/{prefix}", f"{prefix}/", endpoint
        self.client: Any = boto3.client(
            "s3",
            endpoint_url=endpoint,
            region_name="us-east-1",
            aws_access_key_id=KEYS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=KEYS["AWS_SECRET_ACCESS_KEY"],
        )

    def keys(self) -> list[str]:
        found = self.client.list_objects_v2(Bucket=BUCKET, Prefix=self.prefix).get("Contents", [])
        return [each["Key"].removeprefix(self.prefix) for each in found]

    def files(self) -> dict[str, bytes]:
        return {key: self.get(key) for key in self.keys()}

    def put(self, path: str) -> None:
        self.client.put_object(Bucket=BUCKET, Key=self.prefix + path, Body=b"x")

    def get(self, key: str) -> bytes:
        content: bytes = self.client.get_object(Bucket=BUCKET, Key=self.prefix + key)["Body"].read()
        return content


@contextmanager
def s3_server() -> Iterator[str]:
    """The address of an S3 service on loopback with an empty bucket."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        endpoint = "http://{}:{}".format(*server.get_host_and_port())
        Bucket(endpoint, "").client.create_bucket(Bucket=BUCKET)
        yield endpoint
    finally:
        server.stop()


def is_hidden(path: str) -> bool:
    return any(part.startswith((".", "_")) for part in path.split("/"))


def days_of(place: Place, name: str) -> Days:
    """What a reader finds who lists the folders and passes over hidden names."""
    found: Days = {}
    for path, content in place.files().items():
        table, _, rest = path.partition("/")
        if table == name and not is_hidden(rest):
            day, file = rest.split("/")
            found.setdefault(day, {})[file] = pq.read_table(io.BytesIO(content))
    return found


def rows_of(days: Days) -> dict[str, list[dict[str, Any]]]:
    return {day: [row for table in files.values() for row in table.to_pylist()] for day, files in days.items()}


def told(place: Place, name: str) -> dict[str, dict[str, Any]]:
    """What `_SUCCESS` of each day says."""
    files = place.files()
    words = {path: path.split("/") for path in files}
    return {day: json.loads(files[path]) for path, (table, day, *rest) in words.items() if (table, rest) == (name, ["_SUCCESS"])}


def leftovers(place: Place) -> list[str]:
    return [path for path in place.files() if is_hidden(path) and not path.endswith("/_SUCCESS")]
