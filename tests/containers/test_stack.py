"""The stack of containers is the platform: Airflow runs the demonstration's rows on it, and its containers can be broken, with evidence."""

from __future__ import annotations

import json
import subprocess
import time
from typing import Any

import httpx
import pytest

from streamproof.airflow.demo import ROWS
from tests.containers.conftest import DEMO_S, IMAGE, Stack

HAS_NETEM = 'from streamproof.testbed import containers; print(containers.shapes("kafka", "netem"))'
CONTAINERS = ("kill_container", "stop_container", "pause_container", "disconnect_container")


def _experiment(fault: str, **more: Any) -> dict[str, Any]:
    return {
        "name": fault.replace("_", "-"),
        "strategy": "two_phase_commit",
        "testbed": "containers",
        "workload": {"source": "synthetic", "records": 8000},
        "faults": [{"fault": fault, "parameters": {"seconds": 4}}],
        "seed": 7,
        **more,
    }


def test_every_container_is_healthy_and_listens_on_loopback_only(stack: Stack) -> None:
    states = stack.states()
    assert states.pop("init")["ExitCode"] == 0
    assert states.pop("processes")["State"] == "running"
    assert {name: one["Health"] for name, one in states.items()} == dict.fromkeys(states, "healthy")
    published = [port for one in states.values() for port in one["Publishers"] or () if port["PublishedPort"]]
    assert {(port["URL"], port["PublishedPort"]) for port in published} == {("127.0.0.1", stack.port)}


def test_nobody_gets_in_without_the_password_that_was_drawn(stack: Stack) -> None:
    answer = httpx.get(f"http://127.0.0.1:{stack.port}/api/v2/dags", timeout=30)
    assert answer.status_code == 401
    kept = stack.inside("stat -c '%a %U' /var/lib/streamproof/airflow/passwords.json /var/lib/streamproof/testbed/spark-secret.conf")
    assert kept.stdout.split("\n")[:2] == ["600 streamproof"] * 2
    password = json.loads(stack.inside("cat /var/lib/streamproof/airflow/passwords.json").stdout)["admin"]
    told = stack.compose("logs").stdout + stack.compose("config").stdout + stack.inside("cat /proc/[0-9]*/cmdline | tr '\\0' ' '").stdout
    assert password not in told


def test_airflow_runs_the_rows_of_the_demonstration(stack: Stack) -> None:
    done = stack.inside("python -m streamproof.airflow.demo --once --seed 11", timeout_s=DEMO_S)
    rows = json.loads(stack.inside("cat /var/lib/streamproof/demo.json").stdout)
    assert [row["state"] for row in rows] == ["success"] * len(ROWS), done.stdout[-3000:]
    assert f"{len(ROWS)} of {len(ROWS)} rows as expected" in done.stdout


@pytest.fixture
def stranger() -> Any:
    """A container of somebody else's, whose service is called as one of ours."""
    labels = ["--label", "com.docker.compose.project=somebody-elses", "--label", "com.docker.compose.service=kafka"]
    command = ["docker", "run", "--detach", *labels, IMAGE, "sleep", "infinity"]
    made = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    yield made
    subprocess.run(["docker", "rm", "--force", made], capture_output=True, check=True)


@pytest.mark.parametrize("fault", CONTAINERS)
def test_a_container_is_broken_and_comes_back(stack: Stack, stranger: str, fault: str) -> None:
    inspect = ["docker", "inspect", "--format", "{{.State.Status}} {{.State.StartedAt}} {{.State.Pid}}", stranger]
    before = subprocess.run(inspect, capture_output=True, text=True, check=True).stdout
    verdict = stack.run(_experiment(fault))
    (injection,) = verdict["injections"]
    checks = {check["check"]: check["passed"] for check in injection["evidence"]}
    assert all(checks.values()), checks
    assert sum(check.startswith("the container engine says that it is ") for check in checks) == 1
    assert verdict["outcome"] == "PASSED", verdict["reason"]
    assert stack.states()["kafka"]["State"] == "running"
    assert subprocess.run(inspect, capture_output=True, text=True, check=True).stdout == before


def test_a_server_that_the_kernel_kills_for_want_of_memory_comes_back(stack: Stack) -> None:
    verdict = stack.run(_experiment("starve_container"))
    (injection,) = verdict["injections"]
    checks = {check["check"]: check["passed"] for check in injection["evidence"]}
    assert all(checks.values()), injection["evidence"]
    assert "the kernel killed for want of memory" in checks
    assert "its limit of memory is what it was" in checks
    assert verdict["outcome"] == "PASSED", verdict["reason"]


def test_what_a_server_sends_is_held_to_a_rate(stack: Stack) -> None:
    verdict = stack.run(_experiment("throttle_container", faults=[{"fault": "throttle_container", "parameters": {"batches": 3}}]))
    (injection,) = verdict["injections"]
    checks = {check["check"]: check["passed"] for check in injection["evidence"]}
    assert all(checks.values()), injection["evidence"]
    assert "packets had to wait, as the kernel counts" in checks
    assert "the container's network is no longer shaped" in checks
    assert verdict["outcome"] == "PASSED", verdict["reason"]


def test_packets_are_lost_where_the_kernel_can_and_refused_in_a_line_where_it_cannot(stack: Stack) -> None:
    document = _experiment("disturb_container", faults=[{"fault": "disturb_container"}])
    if stack.inside(f"python -c '{HAS_NETEM}'").stdout.strip() == "True":
        verdict = stack.run(document)
        assert verdict["outcome"] == "PASSED", verdict["reason"]
        assert all(check["passed"] for check in verdict["injections"][0]["evidence"])
        return
    done = stack.inside("cat > /tmp/experiment.yaml && streamproof run /tmp/experiment.yaml", json.dumps(document))
    assert done.returncode == 3
    assert (
        "disturb_container cannot be done on this machine: the kernel of the containers' machine has no netem" in done.stdout + done.stderr
    )


def test_so_does_the_database_of_a_job(stack: Stack) -> None:
    parameters = {"seconds": 4, "container": "postgres"}
    verdict = stack.run(
        _experiment("kill_container", strategy="postgres_upsert", faults=[{"fault": "kill_container", "parameters": parameters}])
    )
    assert verdict["outcome"] == "PASSED", verdict["reason"]
    assert all(check["passed"] for check in verdict["injections"][0]["evidence"])


def test_faults_of_processes_and_messages_reach_other_containers(stack: Stack) -> None:
    """The broker in its container, an executor in a worker's, by the process namespace that the stack shares; and messages on their way."""
    faults = [
        {"fault": "kill_kafka", "at": 0.2, "parameters": {"seconds": 2}},
        {"fault": "kill_executor", "at": 0.45},
        {"fault": "lose_answer", "at": 0.65, "parameters": {"message": "Produce"}},
    ]
    verdict = stack.run(_experiment("kill_kafka", name="processes", faults=faults))
    assert verdict["outcome"] == "PASSED", verdict["reason"]
    assert all(check["passed"] for injection in verdict["injections"] for check in injection["evidence"])


def test_a_run_that_was_killed_leaves_the_stack_as_it_was(stack: Stack) -> None:
    document = json.dumps(_experiment("pause_container", faults=[{"fault": "pause_container", "parameters": {"seconds": 100}}]))
    begin = "cat > /tmp/killed.yaml && (setsid streamproof run /tmp/killed.yaml > /tmp/killed.log 2>&1 & echo $! > /tmp/killed.pid)"
    assert stack.inside(begin, document).returncode == 0
    deadline = time.monotonic() + 180
    while stack.states()["kafka"]["State"] != "paused":
        assert time.monotonic() < deadline, stack.inside("tail -20 /tmp/killed.log").stdout
        time.sleep(1)
    assert stack.inside("python -c 'import os; os.killpg(int(open(\"/tmp/killed.pid\").read()), 9)'").returncode == 0
    while stack.states()["kafka"]["State"] != "running":
        assert time.monotonic() < deadline, stack.inside("tail -20 /tmp/killed.log").stdout
        time.sleep(1)
    verdict = stack.run(_experiment("network_latency", faults=[{"fault": "network_latency"}]))
    assert verdict["outcome"] == "PASSED", verdict["reason"]
