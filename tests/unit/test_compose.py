"""docker-compose.yml is the stack that the testbed's code knows: a container for each server, none with more rights than it needs.

No container runs here; ``make test-containers`` builds the stack, starts it and breaks it.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from streamproof import settings
from streamproof.airflow import service
from streamproof.errors import BadInput
from streamproof.experiment.model import Experiment
from streamproof.faults import FAULTS
from streamproof.run import stages
from streamproof.testbed import containers, embedded, hosts, spark, stack
from streamproof.testbed.process import Handle, TestbedError
from tests.support.checkout import ROOT

FILE = ROOT / "docker-compose.yml"
HELPERS = {"init", "processes"}
MAKES_SECRETS = re.compile(r"password|secret|token|key", re.IGNORECASE)


@pytest.fixture(scope="module")
def services() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = yaml.safe_load(FILE.read_text())["services"]
    return found


@pytest.fixture
def in_stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(hosts.STACK, "streamproof")
    monkeypatch.setenv("STREAMPROOF_HOME", str(tmp_path))
    return tmp_path


def test_each_server_of_the_testbed_has_a_container_of_its_name(services: dict[str, dict[str, Any]], in_stack: Path) -> None:
    testbed = embedded.planned()
    one_broker = {name: one for name, one in services.items() if "profiles" not in one}
    commands = {name: one["command"] for name, one in one_broker.items()}
    assert {name for name in commands if not name.startswith("airflow-")} - HELPERS == set(testbed.roles)
    assert all(commands[role] == ["streamproof", "component", role] for role in testbed.roles)
    assert all(services[role]["hostname"] == role for role in testbed.roles)


def test_three_brokers_have_a_container_each(services: dict[str, dict[str, Any]], in_stack: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(hosts.BROKERS, "3")
    first, *others = embedded.planned().brokers
    assert services["kafka"]["networks"]["default"]["aliases"] == [first]
    assert [name for name, one in services.items() if one.get("profiles") == ["three-brokers"]] == others
    assert all(services[role]["command"] == ["streamproof", "component", role] for role in others)
    monkeypatch.setenv(hosts.BROKERS, "2")
    with pytest.raises(BadInput, match="expected 1 or 3, came '2'"):
        hosts.brokers()


def test_so_has_each_component_of_airflow_and_its_database(services: dict[str, dict[str, Any]]) -> None:
    roles = {service.DATABASE, *service.COMPONENTS}
    assert {name for name in services if name.startswith("airflow-")} == roles
    assert all(services[role]["command"] == ["python", "-m", "streamproof.airflow.service", "serve", role] for role in roles)


def test_all_are_of_one_image_that_is_built_here(services: dict[str, dict[str, Any]]) -> None:
    assert {one["image"] for one in services.values()} == {"${STREAMPROOF_IMAGE:-streamproof}"}
    assert [name for name, one in services.items() if "build" in one] == ["init"]
    built = services["init"]["build"]
    dockerfile = (ROOT / built["dockerfile"]).read_text()
    assert all(f"ARG {name}=" in dockerfile for name in built["args"])
    assert re.findall(r"^FROM (\S+)", dockerfile, re.MULTILINE) == ["${BASE}", "${BASE}"]
    for source in re.findall(r"^COPY (?:--chown=\S+ )?((?!--from)[^\n]+) \S+$", dockerfile, re.MULTILINE):
        assert all((ROOT / path).exists() for path in source.split()), source


def test_no_container_has_more_rights_than_it_needs(services: dict[str, dict[str, Any]]) -> None:
    for name, one in services.items():
        assert one["user"] == "50000:0", name
        assert one["read_only"] is True, name
        assert one["cap_drop"] == ["ALL"], name
        assert "no-new-privileges:true" in one["security_opt"], name
        assert all(str(port).startswith("127.0.0.1:") for port in one.get("ports", [])), name
        assert not any(MAKES_SECRETS.search(variable) for variable in one["environment"]), name
        assert name in HELPERS or "mem_limit" in one, name


def test_servers_wait_until_what_they_need_is_there(services: dict[str, dict[str, Any]]) -> None:
    for name in set(services) - HELPERS:
        one = services[name]
        assert one["pid"] == "service:processes", name
        assert one["depends_on"]["init"] == {"condition": "service_completed_successfully"}, name
        assert one["healthcheck"]["test"][0] == "CMD-SHELL", name
        assert str(stack.HEALTHY) in one["healthcheck"]["test"][1], name


def test_it_is_what_the_compose_specification_asks_for() -> None:
    compose_spec = pytest.importorskip("compose_spec")
    read = yaml.safe_load(re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", FILE.read_text()))  # as it is when no variable is set
    parsed = compose_spec.PyCompose.from_yaml(yaml.safe_dump({key: value for key, value in read.items() if not key.startswith("x-")}))
    parsed.validate()


def test_docker_compose_reads_it() -> None:
    if shutil.which("docker") is None or subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode:
        pytest.skip("there is no `docker compose` here")
    done = subprocess.run(["docker", "compose", "config", "--quiet"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_in_the_stack_each_server_has_the_name_of_its_role(in_stack: Path) -> None:
    testbed = embedded.planned()
    assert testbed.direct_kafka.startswith("kafka:")
    assert testbed.driver_kafka.startswith("toxiproxy:")
    assert "host=postgres " in testbed.direct_postgres
    assert "host=toxiproxy " in testbed.pipeline_postgres
    assert testbed.spark_master.startswith("spark://spark-master:")
    assert {upstream.partition(":")[0] for _, upstream in testbed._ways().values()} == {"kafka", "postgres"}
    assert hosts.listen() == "0.0.0.0"
    assert embedded.planned() == testbed
    assert spark.secret_file(Path(testbed.folder)).stat().st_mode & 0o077 == 0


def test_on_one_machine_all_is_on_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(hosts.STACK, raising=False)
    assert {hosts.of("kafka"), hosts.here(), hosts.listen()} == {"127.0.0.1"}
    assert [hosts.of_worker(worker) for worker in spark.WORKERS] == ["127.0.0.2", "127.0.0.3"]
    assert hosts.is_ours("127.0.0.9", ())
    assert not hosts.is_ours("10.1.2.3", ("kafka",))


@pytest.mark.usefixtures("in_stack")
def test_a_stack_is_neither_ended_nor_given_brokers_from_inside() -> None:
    for refused in (embedded.down, lambda: stack.refuse("Kafka of 3 brokers")):
        with pytest.raises(TestbedError, match="docker compose"):
            refused()
    with pytest.raises(TestbedError, match="no server 'kafka-9'"):
        embedded.serve("kafka-9")
    with pytest.raises(TestbedError, match="no 'airflow-triggerer'"):
        service.serve("airflow-triggerer")


def test_outside_of_a_stack_there_is_no_container_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    from streamproof.cli.component_command import component

    monkeypatch.delenv(hosts.STACK, raising=False)
    with pytest.raises(BadInput, match="STREAMPROOF_STACK"):
        component("kafka")


def test_containers_are_broken_only_in_a_stack_that_was_given_the_engines_socket(in_stack: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = [name for name in FAULTS if name.endswith("_container")]
    assert len(named) == 7
    monkeypatch.setattr(containers, "SOCKET", in_stack / "containers.sock")
    for fault in map(FAULTS.__getitem__, named):
        assert "STREAMPROOF_CONTAINER_SOCKET" in (fault.prevented() or "")
    with socket.socket(socket.AF_UNIX) as engine:
        engine.bind(str(in_stack / "containers.sock"))
        assert {FAULTS[name].prevented() for name in named if name != "disturb_container"} == {None}
        with pytest.raises(TestbedError, match="the container engine refuses, or does not answer"):
            containers.state("kafka")  # nobody listens there
    monkeypatch.delenv(hosts.STACK)
    assert {"docker-compose.yml" in (FAULTS[name].prevented() or "") for name in named} == {True}


def test_a_job_without_a_link_to_postgres_has_no_container_of_it() -> None:
    profile = Experiment(strategy="two_phase_commit").profile
    with pytest.raises(ValueError, match="has no link to postgres"):
        FAULTS["kill_container"].check(profile, {"container": "postgres"})
    FAULTS["kill_container"].check(profile, {})


def test_what_is_to_run_in_the_stack_is_refused_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(hosts.STACK, raising=False)
    monkeypatch.setenv("STREAMPROOF_HOME", str(tmp_path))
    folder = stages.create(Experiment(strategy="two_phase_commit", testbed="containers"), "elsewhere")
    with pytest.raises(TestbedError, match="`testbed: containers` is asked for"):
        stages.prepare(folder)


SERVES = """
import sys
from pathlib import Path
from streamproof.testbed import stack
from streamproof.testbed.process import running, spawn
folder = Path(sys.argv[1])
stack.HEALTHY = folder / "healthy"
stack.serve("sleeper", folder, lambda: running("sleeper", folder) or spawn("sleeper", ["sleep", "600"], folder))
"""


def test_a_server_that_was_ended_stays_down_until_somebody_asks(tmp_path: Path) -> None:
    """By a real supervisor, of a process that only sleeps."""
    import sys

    from streamproof.testbed.process import remembered, wait_until

    env = {**os.environ, "STREAMPROOF_HOME": str(tmp_path), "STREAMPROOF_PROJECT": str(settings.project())}
    with subprocess.Popen([sys.executable, "-c", SERVES, str(tmp_path)], env=env, stdout=subprocess.DEVNULL) as supervisor:
        try:

            def handle() -> Handle | None:
                found = remembered("sleeper", tmp_path)
                return found if found is not None and found.alive else None

            wait_until("the server", lambda: handle() is not None, 20)
            first = handle()
            assert first is not None
            process = first.process()
            assert process is not None
            process.kill()
            wait_until("its end", lambda: handle() is None, 10)
            wait_until("the supervisor to say so", lambda: not (tmp_path / "healthy").exists(), 10)
            assert handle() is None
            stack.ask("sleeper", tmp_path)
            again = handle()
            assert again is not None
            assert again.pid != first.pid
        finally:
            supervisor.terminate()
            supervisor.wait(10)
    assert handle() is None  # it ends with its supervisor
