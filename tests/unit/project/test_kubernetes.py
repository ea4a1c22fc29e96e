"""The manifests in include/kubernetes/, against the schemas of Kubernetes and against what the jobs and the image expect."""

import json
import re
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pyspark
import pytest
import yaml

from spark_jobs.runtime.settings import ROOT, read_settings

FOLDER = ROOT / "include/kubernetes"
IMAGE = "registry.example.com/ledger"
SPARK_JARS = Path(pyspark.__file__).parent / "jars"


def objects() -> Iterator[dict[str, Any]]:
    """All of them, each item of a list by itself, and the template of executors."""
    for file in ("common.yaml", "applications.yaml"):
        for found in yaml.safe_load_all((FOLDER / file).read_text()):
            yield from found["items"] if found["kind"] == "List" else [found]
            if found["kind"] == "ConfigMap":
                yield yaml.safe_load(found["data"]["executor.yaml"])


OBJECTS = list(objects())
CONFIG = next(each["data"] for each in OBJECTS if each["kind"] == "ConfigMap")
DRIVERS = {each["metadata"]["name"]: each["spec"]["template"]["spec"] for each in OBJECTS if each["kind"] == "StatefulSet"}
EXECUTOR = next(each["spec"] for each in OBJECTS if each["kind"] == "Pod")
VALUES = yaml.safe_load((FOLDER / "airflow-values.yaml").read_text())
AIRFLOW = {each["name"]: each["value"] for each in VALUES["env"]}


@pytest.mark.parametrize("found", OBJECTS, ids=lambda found: f"{found['kind']} {found['metadata'].get('name', 'of an executor')}")
def test_kubernetes_knows_every_field(found: dict[str, Any]) -> None:
    kubernetes_validate.validate(found, kubernetes_validate.latest_version(), strict=True)


def test_a_field_that_it_does_not_know_is_found() -> None:
    wrong = json.loads(json.dumps(next(each for each in OBJECTS if each["kind"] == "StatefulSet")))
    wrong["spec"]["template"]["spec"]["containers"][0]["image_name"] = "x"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, kubernetes_validate.latest_version(), strict=True)


def test_what_is_referred_to_is_there() -> None:
    named = {kind: {each["metadata"]["name"] for each in OBJECTS if each["kind"] == kind} for kind in ("ServiceAccount", "ConfigMap")}
    named["Claim"] = {each["metadata"]["name"] for each in OBJECTS if each["kind"] == "PersistentVolumeClaim"}
    volumes = [volume for pod in (*DRIVERS.values(), EXECUTOR) for volume in pod["volumes"]] + VALUES["volumes"]
    assert {volume["persistentVolumeClaim"]["claimName"] for volume in volumes if "persistentVolumeClaim" in volume} == named["Claim"]
    assert {volume["configMap"]["name"] for volume in volumes if "configMap" in volume} == named["ConfigMap"]
    assert {pod["serviceAccountName"] for pod in DRIVERS.values()} == named["ServiceAccount"]
    page = (ROOT / "include/docs/kubernetes.md").read_text()
    text = "".join(file.read_text() for file in FOLDER.glob("*.yaml"))
    secrets = {*re.findall(r"[sS]ecretName: ([\w-]+)", text), *re.findall(r"secretKeyRef: { name: ([\w-]+)", text)}
    assert secrets == {"ledger-kafka", "ledger-postgres", "ledger-airflow"}
    assert {name for name in secrets if f"create secret generic {name} " not in page} == set()


def test_all_containers_run_one_image_as_its_user_without_more_rights() -> None:
    dockerfile = (ROOT / "include/docker/Dockerfile").read_text()
    assert "\nUSER 10001\n" in dockerfile
    for pod in (*DRIVERS.values(), EXECUTOR):
        assert pod["securityContext"]["runAsUser"] == 10001
        for container in (*pod["initContainers"], *pod["containers"]):
            assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
            assert container.get("image", f"{IMAGE}:1") == f"{IMAGE}:1"
    assert f"{VALUES['images']['airflow']['repository']}:{VALUES['images']['airflow']['tag']}" == f"{IMAGE}:1"
    assert VALUES["uid"] == 10001


def test_each_application_is_watched_by_its_own_heartbeat() -> None:
    words = {name: pod["containers"][0]["args"] for name, pod in DRIVERS.items()}
    assert words == {f"ledger-{name}": ["python", "-m", "spark_jobs.run", job] for name, job in (("ingestion", "bronze"), ("live", "live"))}
    for name, pod in DRIVERS.items():
        assert pod["containers"][0]["livenessProbe"]["exec"]["command"][-2:] == ["heartbeat", words[name][-1]]


def test_jobs_accept_the_settings_and_airflow_has_the_same(tmp_path: Path) -> None:
    given = {each["name"]: each.get("value") for each in DRIVERS["ledger-ingestion"]["containers"][0]["env"]}
    assert {name for name, value in given.items() if name.startswith("LEDGER_") and value and AIRFLOW[name] != value} == {
        "LEDGER_SPARK_MASTER"
    }
    mounts = {mount["mountPath"] for mount in DRIVERS["ledger-ingestion"]["containers"][0]["volumeMounts"]}
    assert str(Path(given["LEDGER_KAFKA_CONFIG"]).parent) in mounts
    assert given["SPARK_CONF_DIR"] in mounts
    assert mounts - {given["SPARK_CONF_DIR"]} == {mount["mountPath"] for mount in VALUES["volumeMounts"]}
    login = tmp_path / "kafka.properties"
    (tmp_path / "ca.pem").touch()
    login.write_text(f"security.protocol=SSL\nssl.ca.location={tmp_path}/ca.pem\nssl.certificate.location={tmp_path}/own.pem\n")
    (tmp_path / "own.pem").write_text("-----BEGIN PRIVATE KEY-----")
    for file in tmp_path.iterdir():
        file.chmod(0o600)
    settings = read_settings({name: value for name, value in given.items() if value} | {"LEDGER_KAFKA_CONFIG": str(login)})
    assert settings.spark_master == "k8s://https://kubernetes.default.svc"
    assert AIRFLOW["LEDGER_SPARK_MASTER"] == json.loads(AIRFLOW["AIRFLOW_CONN_SPARK_DEFAULT"])["host"]


def test_spark_knows_its_settings() -> None:
    """Their names are constants in its classes."""
    names = [line.split()[0] for line in CONFIG["spark-defaults.conf"].splitlines() if line]
    assert len(names) > 5
    assert [name for name in names if name.encode() not in known()] == []


def known() -> bytes:
    jars = [next(SPARK_JARS.glob(name)) for name in ("spark-kubernetes_*.jar", "spark-core_*.jar")]
    classes = ("org/apache/spark/deploy/k8s/Config$.class", "org/apache/spark/internal/config/package$.class")
    return b"".join(zipfile.ZipFile(jar).read(name) for jar, name in zip(jars, classes, strict=True))


def test_an_executor_is_started_with_what_spark_hands_over(tmp_path: Path) -> None:
    """By stand-ins for java and spark-class; the class exists."""
    (tmp_path / "bin").mkdir()
    for name, text in (("java", 'printf "%s\\n" "$@"'), ("spark-class", "")):
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    names = ("DRIVER_URL", "EXECUTOR_ID", "EXECUTOR_CORES", "EXECUTOR_MEMORY", "EXECUTOR_POD_IP", "EXECUTOR_POD_NAME")
    environment = {f"SPARK_{name}": f"the {name}" for name in (*names, "APPLICATION_ID", "RESOURCE_PROFILE_ID")}
    environment |= {"SPARK_JAVA_OPT_0": "-Da=b c", "SPARK_JAVA_OPT_1": "-Dd", "SPARK_CLASSPATH": "/jars/*"}
    script = ROOT / "include/docker/start-executor"
    assert EXECUTOR["containers"][0]["command"] == ["/opt/ledger/include/docker/start-executor"]
    done = subprocess.run([script, "executor"], env=environment | {"PATH": f"{tmp_path}/bin:/usr/bin:/bin"}, capture_output=True, text=True)
    words = done.stdout.splitlines()
    assert words[:6] == ["-Da=b c", "-Dd", "-Xmsthe EXECUTOR_MEMORY", "-Xmxthe EXECUTOR_MEMORY", "-cp", f"/jars/*:{tmp_path}/jars/*"]
    assert set(environment.values()) - {"the EXECUTOR_MEMORY", "-Da=b c", "-Dd", "/jars/*"} <= set(words)
    with zipfile.ZipFile(next(SPARK_JARS.glob("spark-kubernetes_*.jar"))) as jar:
        assert f"{words[6].replace('.', '/')}.class" in jar.namelist()
