"""docker-compose.yml is a compose file, and its containers are set up as the embedded testbed is.

No container runs here. That the file is what Compose reads is checked three times, each as far as it goes: always against ``Project``
below, which knows those parts of the Compose specification that the file uses and forbids every other key; by the package compose-spec
where it is installed; and by ``docker compose config`` where there is such a command. What an image then makes of its settings is not
shown by any of them.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from streamproof.testbed import install, kafka, postgres, spark
from streamproof.testbed.embedded import POSTGRES_PROXY
from tests.support.checkout import ROOT

FILE = ROOT / "docker-compose.yml"
PORTS = kafka.KafkaPorts(direct=9092, driver=9093, executors=9096, controller=9094, driver_proxy=9095, executors_proxy=9097)
POSTGRES_PORTS = postgres.PostgresPorts(direct=5432, proxy=5433)

Duration = Annotated[str, Field(pattern=r"^(\d+(ms|s|m|h))+$")]
Name = Annotated[str, Field(pattern=r"^[a-zA-Z0-9._-]+$")]
Command = str | list[str]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Build(_Part):
    context: str
    dockerfile: str
    target: str


class Dependency(_Part):
    condition: Literal["service_started", "service_healthy", "service_completed_successfully"]


class HealthCheck(_Part):
    test: Annotated[list[str], Field(min_length=2)]
    interval: Duration
    timeout: Duration
    retries: Annotated[int, Field(gt=0)]
    start_period: Duration = "0s"


class Service(_Part):
    image: str
    healthcheck: HealthCheck
    build: Build | None = None
    hostname: Name | None = None
    user: str | None = None
    command: Command | None = None
    environment: dict[str, str] = {}
    ports: list[Annotated[str, Field(pattern=r"^127\.0\.0\.1:\d+:\d+$")]] = []
    volumes: list[Annotated[str, Field(pattern=r"^[^:]+:/[^:]*(:ro)?$")]] = []
    depends_on: dict[Name, Dependency] = {}


class Project(BaseModel):
    """The subset of the Compose specification that the file uses. Top-level keys that begin with ``x-`` are the file's own."""

    model_config = ConfigDict(extra="allow", strict=True)

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")]
    services: dict[Name, Service]
    volumes: dict[Name, None]


def _document() -> dict[str, Any]:
    found = yaml.safe_load(FILE.read_text())
    assert isinstance(found, dict)
    return found


@pytest.fixture(scope="module")
def project() -> Project:
    return Project.model_validate(_document())


# --- a compose file ---------------------------------------------------------------------------------------------------------------


def test_every_key_is_one_of_the_compose_specification(project: Project) -> None:
    assert all(key.startswith("x-") for key in project.model_extra or {})


def test_a_misspelt_key_is_noticed() -> None:
    document = _document()
    document["services"]["kafka"]["helthcheck"] = {}
    with pytest.raises(ValidationError, match="helthcheck"):
        Project.model_validate(document)


def test_the_package_compose_spec_accepts_it() -> None:
    compose_spec = pytest.importorskip("compose_spec")
    parsed = compose_spec.PyCompose.from_yaml(yaml.safe_dump(_document()))  # written again: it does not know YAML's merge key
    parsed.validate()


def test_docker_compose_accepts_it() -> None:
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "compose", "version"], capture_output=True, timeout=60).returncode != 0:
        pytest.skip("there is no docker compose")
    wanted = dict.fromkeys(_variables(), "set")
    done = subprocess.run(
        [docker, "compose", "-f", str(FILE), "config", "--quiet"], capture_output=True, text=True, timeout=60, env={**os.environ, **wanted}
    )
    assert done.returncode == 0, done.stderr


def test_what_a_service_refers_to_exists(project: Project) -> None:
    for name, service in project.services.items():
        assert set(service.depends_on) <= set(project.services) - {name}
        for volume in service.volumes:
            source = volume.split(":")[0]
            assert (ROOT / source).exists() if source.startswith(".") else source in project.volumes, f"{name}: {volume}"
        if service.build:
            assert service.build.target in _stages()


def test_every_container_waits_until_what_it_needs_is_healthy(project: Project) -> None:
    conditions = {need.condition for service in project.services.values() for need in service.depends_on.values()}
    assert conditions == {"service_healthy"}
    assert set(project.services["airflow-apiserver"].depends_on) == {"kafka", "postgres", "toxiproxy", "spark-master", *_workers(project)}


def test_no_port_is_published_twice(project: Project) -> None:
    published = [port.split(":")[1] for service in project.services.values() for port in service.ports]
    assert len(published) == len(set(published))


# --- secrets ----------------------------------------------------------------------------------------------------------------------


def _variables() -> list[str]:
    return re.findall(r"(?<!\$)\$\{(\w+)", FILE.read_text())


def test_every_secret_comes_from_the_environment_and_must_be_set(project: Project) -> None:
    secrets = {
        value
        for service in project.services.values()
        for key, value in service.environment.items()
        if re.search(r"PASSWORD$|SECRET|FERNET_KEY$", key)
    }
    assert len(secrets) == 5
    assert all(re.fullmatch(r"\$\{STREAMPROOF_\w+:\?[^}]+\}", secret) for secret in secrets), secrets


# --- versions ---------------------------------------------------------------------------------------------------------------------


def _stages() -> dict[str, str]:
    """The Dockerfile's stages: name to the image that each begins from."""
    text = (ROOT / "docker" / "Dockerfile").read_text()
    return {stage: image for image, stage in re.findall(r"^FROM (\S+) AS (\S+)$", text, re.MULTILINE)}


def _pinned(package: str) -> str:
    found = re.search(rf"^{re.escape(package)}==(\S+)", (ROOT / "requirements.in").read_text(), re.MULTILINE)
    assert found is not None, f"requirements.in does not pin {package}"
    return found[1]


def test_kafka_is_the_version_whose_jars_are_locked(project: Project) -> None:
    locked = {jar.version for jar in install.locked_jars() if jar.set == "kafka" and jar.artifact == "kafka_2.13"}
    assert {project.services["kafka"].image} == {f"apache/kafka:{version}" for version in locked}


def test_postgres_is_the_version_that_the_wheel_brings(project: Project) -> None:
    said = subprocess.run([postgres.programs() / "postgres", "--version"], capture_output=True, text=True, timeout=60, check=True).stdout
    assert said.split()[-1] == postgres.VERSION
    assert project.services["postgres"].image == f"postgres:{postgres.VERSION}"


def test_toxiproxy_is_the_version_that_is_compiled(project: Project) -> None:
    version = install.locked_modules()["github.com/Shopify/toxiproxy/v2"].split()[0].removeprefix("v")
    assert project.services["toxiproxy"].image == f"ghcr.io/shopify/toxiproxy:{version}"


@pytest.mark.parametrize(
    ("stage", "image", "package"), [("spark", "apache/spark", "pyspark"), ("airflow", "apache/airflow", "apache-airflow")]
)
def test_what_is_built_begins_from_the_pinned_version(project: Project, stage: str, image: str, package: str) -> None:
    version = _pinned(package)
    assert _stages()[stage].startswith(f"{image}:{version}-")
    built = {service.image for service in project.services.values() if service.build and service.build.target == stage}
    assert built == {f"streamproof-{stage}:{version}"}


def test_driver_and_executors_have_the_same_python() -> None:
    text = (ROOT / "docker" / "Dockerfile").read_text()
    assert re.findall(r"uv venv --python (\S+) /opt/venv", text) == ["3.11", "3.11"]
    assert _stages()["airflow"].endswith("-python3.11")


def test_every_image_has_a_version(project: Project) -> None:
    for image in [*_stages().values(), *(service.image for service in project.services.values())]:
        assert re.fullmatch(r"[a-z0-9./-]+:\d+\.\d+(\.\d+)?(-[a-z0-9.-]+)?", image), image


# --- the same settings as the embedded testbed ------------------------------------------------------------------------------------


def _elsewhere(key: str, value: str) -> str:
    """A setting of the embedded broker as it reads where each system has a name of its own instead of a port of 127.0.0.1."""
    if key == "listeners":
        return value.replace("127.0.0.1", "0.0.0.0")
    for proxy in (PORTS.driver_proxy, PORTS.executors_proxy):
        value = value.replace(f"127.0.0.1:{proxy}", f"toxiproxy:{proxy}")
    return value.replace("127.0.0.1", "kafka")


def test_the_broker_has_the_settings_of_the_embedded_one(project: Project) -> None:
    embedded = dict(line.split("=", 1) for line in kafka._configuration([PORTS], 1, Path("/var/lib/kafka/data")).splitlines())
    environment = project.services["kafka"].environment
    container = {
        key.removeprefix("KAFKA_").lower().replace("_", "."): value
        for key, value in environment.items()
        if key.startswith("KAFKA_") and key != "KAFKA_HEAP_OPTS"
    }
    assert container == {key: _elsewhere(key, value) for key, value in embedded.items()}


def test_the_broker_has_the_embedded_one_s_cluster_id_and_heap(project: Project) -> None:
    source = Path(kafka.__file__).read_text()
    environment = project.services["kafka"].environment
    assert f'"-t", "{environment["CLUSTER_ID"]}"' in source
    assert environment["KAFKA_HEAP_OPTS"].split() == kafka.HEAP


def test_postgres_has_the_settings_of_the_embedded_one(project: Project) -> None:
    service = project.services["postgres"]
    assert isinstance(service.command, list)
    assert dict(setting.split("=", 1) for setting in service.command[1::2]) == postgres.SETTINGS
    assert set(service.command[::2]) == {"-c"}
    assert service.environment["POSTGRES_INITDB_ARGS"].split() == list(postgres.INITDB)
    assert (service.environment["POSTGRES_USER"], service.environment["POSTGRES_DB"]) == (postgres.USER, postgres.DATABASE)
    assert {f"--username={postgres.USER}", f"--dbname={postgres.DATABASE}"} <= set(service.healthcheck.test)


def test_nothing_that_makes_a_commit_durable_is_turned_off() -> None:
    assert not {"fsync", "synchronous_commit", "full_page_writes"} & {*postgres.SETTINGS, *postgres.EMBEDDED_SETTINGS}


def test_the_proxies_stand_where_the_pipeline_is_sent(project: Project) -> None:
    driver, executors = "kafka-driver", "kafka-executors"
    ways = {
        driver: (PORTS.driver_proxy, f"kafka:{PORTS.driver}"),
        executors: (PORTS.executors_proxy, f"kafka:{PORTS.executors}"),
        POSTGRES_PROXY: (POSTGRES_PORTS.proxy, f"postgres:{POSTGRES_PORTS.direct}"),
    }
    expected = [{"name": name, "listen": f"0.0.0.0:{at}", "upstream": to, "enabled": True} for name, (at, to) in ways.items()]
    assert json.loads((ROOT / "docker" / "toxiproxy.json").read_text()) == expected
    service = project.services["toxiproxy"]
    assert "./docker/toxiproxy.json:/etc/toxiproxy.json:ro" in service.volumes
    assert "-config=/etc/toxiproxy.json" in (service.command or "")
    assert service.healthcheck.test[-1] == driver


def _workers(project: Project) -> dict[str, Service]:
    return {name: service for name, service in project.services.items() if name.startswith("spark-worker-")}


def test_spark_has_the_same_workers(project: Project) -> None:
    workers = _workers(project)
    assert set(workers) == {f"spark-{role}" for role in spark.WORKERS}
    for name, worker in workers.items():
        assert isinstance(worker.command, str)
        assert f"--host {name} " in worker.command
        assert f"--cores {spark.WORKER_CORES} --memory {spark.WORKER_MEMORY_MB}M " in worker.command


def test_spark_s_daemons_have_the_same_properties(project: Project) -> None:
    def without_folder(properties: list[str]) -> set[str]:
        return {each.split("=")[0] if "Directory=" in each else each for each in properties}

    embedded = without_folder(re.findall(r'"(-Dspark\.[^"]+)"', Path(spark.__file__).read_text()))
    master = without_folder(project.services["spark-master"].environment["SPARK_MASTER_OPTS"].split())
    workers = [set(worker.environment["SPARK_WORKER_OPTS"].split()) for worker in _workers(project).values()]
    assert master.union(*workers) == embedded


def test_driver_and_executors_see_one_runs_folder(project: Project) -> None:
    for name in ("airflow-scheduler", *_workers(project)):
        service = project.services[name]
        assert f"runs:{service.environment['STREAMPROOF_HOME']}" in service.volumes
        assert service.user == "50000:0"
