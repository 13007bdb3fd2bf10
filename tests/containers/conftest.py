"""The stack of docker-compose.yml, built and started for these tests, and taken away with all that it has kept.

It needs a container engine with Compose; none is installed here, and where there is none the tests are skipped in one line. The base
image and the certificates of the build are those of the environment (``STREAMPROOF_BASE``, ``STREAMPROOF_BUILD_CA``).
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from streamproof.testbed.process import free_port
from tests.support.checkout import ROOT

BUILD_S, UP_S, DOWN_S, RUN_S, DEMO_S = 1500.0, 300.0, 120.0, 400.0, 900.0
SOCKET = Path("/var/run/docker.sock")
IMAGE = "streamproof-tested"


@cache
def _wanting() -> str | None:
    """Why no stack can be started here, None when one can."""
    try:
        subprocess.run(["docker", "compose", "version"], capture_output=True, check=True, timeout=60)
        subprocess.run(["docker", "version"], capture_output=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        return f"these tests need a container engine with Compose, and `docker` says: {error}"
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.timeout(BUILD_S + UP_S + DEMO_S))  # the first one builds the image


@dataclass(frozen=True)
class Stack:
    project: str
    port: int
    environment: dict[str, str]

    def compose(self, *words: str, timeout_s: float = RUN_S, given: str | None = None) -> subprocess.CompletedProcess[str]:
        command = ["docker", "compose", "--project-name", self.project, *words]
        return subprocess.run(
            command, cwd=ROOT, env=self.environment, input=given, capture_output=True, text=True, timeout=timeout_s, check=False
        )

    def inside(self, script: str, given: str | None = None, timeout_s: float = RUN_S) -> subprocess.CompletedProcess[str]:
        """A shell's script in the container in which Airflow's tasks run."""
        return self.compose("exec", "-T", "airflow-scheduler", "sh", "-c", script, timeout_s=timeout_s, given=given)

    def run(self, document: dict[str, Any]) -> dict[str, Any]:
        """The verdict of an experiment that runs on the stack."""
        done = self.inside("cat > /tmp/experiment.yaml && streamproof run /tmp/experiment.yaml --json", json.dumps(document))
        assert done.stdout, done.stderr[-2000:]
        verdict: dict[str, Any] = json.loads(done.stdout)
        return verdict

    def states(self) -> dict[str, dict[str, Any]]:
        """What the engine says of each container, by its service."""
        listed = self.compose("ps", "--all", "--format", "json").stdout.splitlines()
        return {one["Service"]: one for one in map(json.loads, listed)}


@pytest.fixture(scope="session")
def stack() -> Iterator[Stack]:
    if (wanting := _wanting()) is not None:
        pytest.skip(wanting)
    port, project = free_port(), f"streamproof-test-{os.getpid()}"
    own = {"STREAMPROOF_IMAGE": IMAGE, "STREAMPROOF_AIRFLOW_PORT": str(port), "COMPOSE_PROJECT_NAME": project, "DOCKER_BUILDKIT": "1"}
    if SOCKET.is_socket():
        own |= {"STREAMPROOF_CONTAINER_SOCKET": str(SOCKET), "STREAMPROOF_CONTAINER_GROUP": str(SOCKET.stat().st_gid)}
    stack = Stack(project, port, {**os.environ, **own})
    built = stack.compose("build", timeout_s=BUILD_S)
    assert built.returncode == 0, built.stderr[-3000:]
    try:
        begun = stack.compose("up", "--detach", "--wait", timeout_s=UP_S)
        assert begun.returncode == 0, begun.stderr[-2000:] + stack.compose("logs", "--tail", "20").stdout[-6000:]
        yield stack
    finally:
        stack.compose("down", "--volumes", "--timeout", "5", timeout_s=DOWN_S)
        subprocess.run(
            ["docker", "image", "rm", "--force", IMAGE], capture_output=True, check=False
        )  # its layers stay in the build's cache
    left = subprocess.run(
        ["docker", "ps", "--all", "--quiet", "--filter", f"label=com.docker.compose.project={project}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert left.stdout == ""
