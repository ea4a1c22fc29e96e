"""docker-compose.yaml and its image, read carefully: there is no container engine to try them with."""

import importlib.util
import itertools
import json
import os
import re
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from airflow.providers.openlineage.get_provider_info import get_provider_info

from include import airflow_roles
from include.setup.install import LOCKS
from include.stack import airflow, cluster
from spark_jobs.runtime.settings import ROOT, read_settings

COMPOSE = yaml.safe_load((ROOT / "docker-compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
AIRFLOW = [name for name in SERVICES if name.startswith("airflow-")]
OURS = [name for name, service in SERVICES.items() if "build" in service]
ONCE = ["airflow-init"]
WORKERS = ["spark-worker-1", "spark-worker-2"]
VARIABLE = re.compile(r"(?<!\$)\$\{(?P<name>\w+)(?::(?P<kind>[-?])(?P<text>[^}]*))?\}")
SECRET = re.compile(r"PASSWORD|SECRET|FERNET_KEY|ADMIN_")
DOCKERFILE = (ROOT / "include/docker/Dockerfile").read_text()


def installed(package: str) -> Path:
    """The folder of an installed package, without importing it."""
    found = importlib.util.find_spec(package)
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


def filled_in(text: str) -> str:
    """A value of the file as Compose would pass it on, with `filled` for what has no default."""
    return VARIABLE.sub(lambda variable: variable["text"] if variable["kind"] == "-" else "filled", text)


def variables(file: str) -> dict[str, str]:
    """NAME -> default of an env file; empty where there is none."""
    lines = (ROOT / file).read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def test_every_part_is_a_service() -> None:
    parts = {"airflow-api-server", "airflow-scheduler", "airflow-dag-processor", "airflow-triggerer", "airflow-init"}
    assert parts | {"kafka", "postgres", *cluster.PARTS} == set(SERVICES)


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_watched_and_waits_for_what_it_needs(name: str) -> None:
    service = SERVICES[name]
    assert ("healthcheck" in service) == (name not in ONCE)
    assert service["restart"] == ("no" if name in ONCE else "unless-stopped")
    for needed, how in service.get("depends_on", {}).items():
        assert how == {"condition": "service_completed_successfully" if needed in ONCE else "service_healthy"}
        assert needed in SERVICES


@pytest.mark.parametrize("name", SERVICES)
def test_ports_are_published_on_loopback_only(name: str) -> None:
    assert [port for port in SERVICES[name].get("ports", []) if not port.startswith("127.0.0.1:")] == []


def test_no_secret_has_a_default() -> None:
    secrets = [
        (name, variable, value)
        for name, service in SERVICES.items()
        for variable, value in service.get("environment", {}).items()
        if SECRET.search(variable) or "@" in value
    ]
    assert len(secrets) > 10
    assert [found for found in secrets if not any(part["kind"] == "?" for part in VARIABLE.finditer(found[2]))] == []


def test_the_example_lists_every_variable_with_the_same_default() -> None:
    used = {
        found["name"]: found["text"] if found["kind"] == "-" else ""
        for found in VARIABLE.finditer((ROOT / "docker-compose.yaml").read_text())
    }
    assert used
    assert variables(".env.example") == used


def test_every_variable_of_the_example_is_explained_in_one_line() -> None:
    lines = (ROOT / ".env.example").read_text().splitlines()
    assert [line for before, line in itertools.pairwise(lines) if "=" in line and line[0] != "#" and not before.startswith("# ")] == []


def test_airflow_parts_share_image_settings_and_volumes() -> None:
    assert len(AIRFLOW) == 5
    first = SERVICES["airflow-scheduler"]
    for name in AIRFLOW:
        service = SERVICES[name]
        assert service["volumes"] == first["volumes"] == SERVICES[WORKERS[0]]["volumes"] == SERVICES[WORKERS[1]]["volumes"]
        assert first["environment"].items() <= service["environment"].items()
    assert len({SERVICES[name]["image"] for name in OURS}) == 1
    assert set(OURS) == set(SERVICES) - {"postgres"}


def test_airflow_knows_every_option() -> None:
    known = yaml.safe_load((installed("airflow") / "config_templates/config.yml").read_text()) | get_provider_info()["config"]  # type: ignore[no-untyped-call]
    names = [name.removesuffix("_CMD") for name in SERVICES["airflow-scheduler"]["environment"] if name.startswith("AIRFLOW__")]
    options = [name.split("__")[1:] for name in names]
    assert options
    assert [(section, option) for section, option in options if option.lower() not in known[section.lower()]["options"]] == []


def test_the_auth_manager_exists_and_is_not_the_one_for_development() -> None:
    module, _, name = SERVICES["airflow-scheduler"]["environment"]["AIRFLOW__CORE__AUTH_MANAGER"].rpartition(".")
    file = installed("airflow") / module.removeprefix("airflow.").replace(".", "/")
    assert name == "FabAuthManager"
    assert f"class {name}(" in file.with_suffix(".py").read_text()


def test_both_stacks_have_the_same_auth_manager_and_roles() -> None:
    assert (
        '"CORE__AUTH_MANAGER": "airflow.providers.fab.auth_manager.fab_auth_manager.FabAuthManager"'
        in (ROOT / "include/stack/airflow.py").read_text()
    )
    lines = [line.strip() for line in SERVICES["airflow-init"]["command"][-1].splitlines()]
    assert lines[0] == f"python -m {airflow_roles.__name__}"
    assert lines[1].startswith(f"airflow users create --role {airflow_roles.ADMIN} ")


def test_the_pipeline_accepts_the_settings() -> None:
    environment = {name: filled_in(value) for name, value in SERVICES["airflow-scheduler"]["environment"].items()}
    source = (ROOT / "spark_jobs/runtime/settings.py").read_text()
    assert [name for name in environment if name.startswith("LEDGER_") and f'"{name}"' not in source] == []
    settings = read_settings(environment)
    assert settings.kafka_bootstrap == "kafka:9092"
    assert settings.postgres_url == "postgresql://ledger:filled@postgres:5432/ledger"
    connection = json.loads(environment["AIRFLOW_CONN_SPARK_DEFAULT"])
    assert (connection["conn_type"], connection["host"]) == ("spark", settings.spark_master)
    mounted = {volume.split(":")[1] for volume in SERVICES["airflow-scheduler"]["volumes"]}
    assert {
        str(settings.home),
        str(settings.warehouse),
        str(settings.checkpoints),
        environment["AIRFLOW__LOGGING__BASE_LOG_FOLDER"],
    } == mounted


def test_volumes_are_declared_and_made_for_the_user_of_the_image() -> None:
    mounts = {volume for name in OURS for volume in SERVICES[name].get("volumes", [])}
    assert {mount.split(":")[0] for mount in mounts} | {"postgres"} == set(COMPOSE["volumes"])
    made = re.search(r"/var/lib/ledger/\{([\w,]+)\}", DOCKERFILE)
    assert made is not None
    assert {mount.split(":")[1] for mount in mounts} <= {f"/var/lib/ledger/{name}" for name in made[1].split(",")}


def test_spark_and_kafka_have_the_classes_that_are_started() -> None:
    names = [word for service in SERVICES.values() for word in service.get("command", []) if word.startswith("org.apache.spark.")]
    assert len(names) == 3
    spark = next(installed("pyspark").glob("jars/spark-core_*.jar"))
    assert [name for name in names if f"{name.replace('.', '/')}.class" not in zipfile.ZipFile(spark).namelist()] == []
    started = set(re.findall(r"kafka\.(?:tools\.)?[A-Z]\w+", (ROOT / "include/docker/start-kafka").read_text()))
    assert started == {"kafka.tools.StorageTool", "kafka.Kafka"}
    kafka = next((ROOT / ".jars/kafka").glob("kafka_2*.jar"))
    assert [name for name in started if f"{name.replace('.', '/')}.class" not in zipfile.ZipFile(kafka).namelist()] == []


@pytest.mark.parametrize("name", cluster.PARTS)
def test_spark_takes_the_words_of_the_command(name: str) -> None:
    """With `--help` behind them: the first word that it does not know would end it with exit code 1."""
    launcher, *words = SERVICES[name]["command"]
    done = subprocess.run([installed("pyspark") / "bin" / launcher, *words, "--help"], capture_output=True, text=True)
    assert (done.returncode, "Usage: " in done.stderr) == (0, True)


def test_airflow_takes_the_words_of_the_commands() -> None:
    own = {name: SERVICES[name]["command"][1:] for name in AIRFLOW if name not in ONCE}
    assert {name: words[0] for name, words in own.items()} == {name: words[0] for name, words in airflow.COMMANDS.items()}
    users = shlex.split(" ".join(SERVICES["airflow-init"]["command"][-1].splitlines()[1:]).replace("\\", ""))[1:]
    code = (
        "import json, sys\nfrom airflow.cli.cli_parser import get_parser\nfor words in json.load(sys.stdin): get_parser().parse_args(words)"
    )
    environment = {**os.environ, "AIRFLOW__CORE__AUTH_MANAGER": SERVICES["airflow-init"]["environment"]["AIRFLOW__CORE__AUTH_MANAGER"]}
    told = json.dumps([*own.values(), users])
    done = subprocess.run([sys.executable, "-c", code], input=told, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_broker_listens_where_the_others_look() -> None:
    lines = (ROOT / "include/docker/kafka.properties").read_text().splitlines()
    properties = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    assert properties["advertised.listeners"] == "INSIDE://kafka:9092,OUTSIDE://127.0.0.1:19092"
    assert SERVICES["kafka"]["ports"] == ["127.0.0.1:19092:19092"]
    assert SERVICES["kafka"]["volumes"] == [f"kafka:{properties['log.dirs']}"]


def test_the_image_is_made_from_the_lock_files_and_runs_as_a_user() -> None:
    copied = re.findall(r"^COPY (\S+) (\S+)$", DOCKERFILE, re.MULTILINE)
    assert [source for source, _ in copied if not (ROOT / source).exists()] == []
    assert {"requirements.txt", *(str(lock.relative_to(ROOT)) for lock in LOCKS.values())} <= {source for source, _ in copied}
    assert re.findall(r"^USER (.*)$", DOCKERFILE, re.MULTILINE) == ["10001"]
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert {source.split("/")[0] for source, _ in copied} == allowed


def test_images_are_pinned_by_digest() -> None:
    bases = re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    foreign = [service["image"] for name, service in SERVICES.items() if name not in OURS]
    assert bases
    assert foreign
    assert [image for image in (*bases, *foreign) if not re.fullmatch(r"[a-z]+:\d+\.\d+(\.\d+)?-[\w.-]+@sha256:[0-9a-f]{64}", image)] == []


@pytest.mark.parametrize("name", SERVICES)
def test_logs_and_memory_are_bounded(name: str) -> None:
    assert SERVICES[name]["logging"]["options"] == {"max-size": "10m", "max-file": "5"}
    assert VARIABLE.fullmatch(SERVICES[name]["mem_limit"])


def test_airflows_address_is_a_setting() -> None:
    assert VARIABLE.fullmatch(SERVICES["airflow-api-server"]["environment"]["AIRFLOW__API__BASE_URL"])


def test_sparks_processes_share_a_secret_and_the_settings_of_a_closed_cluster() -> None:
    for name in ("spark-master", *WORKERS):
        command = SERVICES[name]["command"]
        assert command[command.index("--properties-file") + 1] == "/opt/ledger/include/spark/cluster.conf"
        assert SERVICES[name]["environment"].keys().isdisjoint({"SPARK_MASTER_OPTS", "SPARK_WORKER_OPTS", "SPARK_DAEMON_JAVA_OPTS"})
    using = {name for name, service in SERVICES.items() if "_SPARK_AUTH_SECRET" in service.get("environment", {})}
    assert using == {"spark-master", *WORKERS, *AIRFLOW}
    assert [SERVICES[name]["environment"]["SPARK_LOCAL_IP"] for name in WORKERS] == ["127.0.0.1"] * 2
    defaults = variables(".env.example")
    assert (defaults["SPARK_WORKER_CORES"], defaults["SPARK_WORKER_MEMORY"]) == (str(cluster.WORKER_CORES), cluster.WORKER_MEMORY)
    assert [SERVICES[name]["command"][3] for name in WORKERS] == WORKERS  # the name under which executors are reached


def test_only_drivers_and_workers_reach_the_master() -> None:
    assert {"default", "spark"} == set(COMPOSE["networks"])
    assert {name for name, service in SERVICES.items() if "spark" in service.get("networks", [])} == {
        "spark-master",
        *WORKERS,
        "airflow-scheduler",
    }
    assert SERVICES["spark-master"]["networks"] == ["spark"]


def test_a_container_keeps_its_files_private() -> None:
    found = re.search(r"^ENTRYPOINT (\[.*\])$", DOCKERFILE, re.MULTILINE)
    assert found
    words = [*json.loads(found[1]), "sh", "-c", "umask; echo $1 $2", "x", "a b", "c"]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == "0077\na b c\n"
    assert "install --directory --mode=0700" in DOCKERFILE
    options = SERVICES["airflow-scheduler"]["environment"]
    assert {name.rpartition("NEW_")[2]: value for name, value in options.items() if "FILE_TASK_HANDLER" in name} == {
        "FOLDER_PERMISSIONS": "0o700",
        "FILE_PERMISSIONS": "0o600",
    }


@pytest.mark.parametrize("script", ["include/docker/start-kafka", "include/docker/postgres-init"])
def test_scripts_are_executable_and_parse(script: str) -> None:
    assert (ROOT / script).stat().st_mode & 0o111 == 0o111
    assert subprocess.run(["sh", "-n", ROOT / script], capture_output=True, text=True).stderr == ""
