"""A schema registry for tests: Apicurio, a real one, which keeps its schemas in memory and speaks Confluent's API."""

import socket
import subprocess
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from include.setup.install import JARS, ivy_command, java_command, run, sha256
from include.stack.endpoints import HOST
from include.stack.processes import stop

_VERSION = "2.6.13.Final"  # the newest for Java 17
_NAME = f"apicurio-registry-app-{_VERSION}"
_SUM = "3cda1b34aa020fb4ac4dd6a66018d757e81e437f97e20a1f92d366b70091c6ba"
_IVY = f"""<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven"><info organisation="ledger" module="tests"/><dependencies>
<dependency org="io.apicurio" name="apicurio-registry-app" rev="{_VERSION}" transitive="false">
<artifact name="apicurio-registry-app" type="tar.gz" ext="tar.gz" m:classifier="all"/></dependency></dependencies></ivy-module>"""
_SECONDS = 120


@contextmanager
def running_registry(folder: Path) -> Iterator[str]:
    """The address of a registry without schemas, which runs until the block ends; `folder` gets its log."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port = probe.getsockname()[1]
    options = [f"-Dquarkus.http.port={port}", f"-Dquarkus.http.host={HOST}", "-Xmx256m", "-XX:TieredStopAtLevel=1"]
    command = [java_command(), *options, "-jar", str(_unpacked() / f"{_NAME}-runner.jar")]
    url = f"http://{HOST}:{port}/apis/ccompat/v7"
    with (folder / "registry.log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        _await(f"{url}/subjects", process, folder / "registry.log")
        yield url
    finally:
        stop([psutil.Process(process.pid)], 10)
        process.wait()


def _await(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    until = time.monotonic() + _SECONDS
    while time.monotonic() < until and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise AssertionError(f"found no registry at {url}: {log.read_text()[-2000:]}")


def _unpacked() -> Path:
    """The folder of its jars, fetched once."""
    folder = JARS / "registry" / _VERSION
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            (Path(scratch) / "ivy.xml").write_text(_IVY)
            run(ivy_command(Path(scratch), "tar.gz"))
            archive = Path(scratch) / f"apicurio-registry-app-{_VERSION}.tar.gz"
            assert sha256(archive) == _SUM
            with tarfile.open(archive) as packed:
                packed.extractall(Path(scratch) / "unpacked", filter="data")
            (Path(scratch) / "unpacked").rename(folder)
    return folder
