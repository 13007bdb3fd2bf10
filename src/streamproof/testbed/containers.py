"""The containers of the stack, by the container engine's API: Docker's, or podman's, which speaks the same.

The user decides whether a run may use it: it is there when the engine's socket is mounted at ``/run/streamproof/containers.sock``. Whoever
may write to that socket may do anything on its machine, so nothing here looks beyond the containers of the stack's own project: each is
found by the labels that Compose gives it, and a role that has not exactly one container is refused.

Checked against: Docker Engine 20.10 with Compose 2.40, docker (Python) 7.1.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamproof import extras
from streamproof.testbed import hosts
from streamproof.testbed.process import TestbedError

if TYPE_CHECKING:
    from docker.models.containers import Container

SOCKET = Path("/run/streamproof/containers.sock")
TIMEOUT_S, START_S, POLL_S = 30, 90.0, 0.2
PROJECT, SERVICE = "com.docker.compose.project", "com.docker.compose.service"
KILLED = 137
"""The exit code of a container whose first process was ended by SIGKILL."""


def prevented() -> str | None:
    """Why containers cannot be broken from here, and what to do; None when they can."""
    if hosts.stack() is None:
        return "it breaks a container, and here the testbed's servers are processes; run it in the stack of docker-compose.yml"
    if not SOCKET.is_socket():
        return "it needs the container engine's socket: set STREAMPROOF_CONTAINER_SOCKET=/var/run/docker.sock for `docker compose up`"
    return None


def of(role: str) -> Container:
    """The stack's container of that role, running or not. Raises TestbedError when it has not exactly one, or when the engine does not
    answer."""
    labels = [f"{PROJECT}={hosts.stack()}", f"{SERVICE}={role}"]
    found = _asked(lambda engine: engine.containers.list(all=True, filters={"label": labels}))
    if len(found) != 1:
        raise TestbedError(f"the stack {hosts.stack()} has {len(found)} containers {role!r}, expected 1")
    (one,) = found
    return one


def state(role: str) -> dict[str, Any]:
    """What the engine says of the container: ``Status``, ``ExitCode``, ``OOMKilled``, ``StartedAt``, ..."""
    read: dict[str, Any] = _asked(lambda engine: engine.api.inspect_container(of(role).id)["State"])
    return read


def networks(role: str) -> dict[str, list[str]]:
    """The networks that the container is connected to, by name; its names there."""
    said = _asked(lambda engine: engine.api.inspect_container(of(role).id)["NetworkSettings"]["Networks"])
    return {name: list(one.get("Aliases") or []) for name, one in said.items()}


def told(role: str, verb: str, **words: Any) -> None:
    """``kill``, ``stop``, ``pause``, ``unpause`` or ``start`` it. Raises TestbedError when the engine refuses."""
    container = of(role)
    _asked(lambda engine: getattr(container, verb)(**words))


def disconnect(role: str, network: str) -> None:
    container = of(role)
    _asked(lambda engine: engine.networks.get(network).disconnect(container, force=True))


def connect(role: str, network: str, aliases: list[str]) -> None:
    """Back, by the names that it had: whoever asks for one finds it again."""
    container = of(role)
    _asked(lambda engine: engine.networks.get(network).connect(container, aliases=aliases))


def bring_back(role: str) -> None:
    """Let the container run: wake it when it is paused, start it when it is not. May be repeated. Raises TestbedError when it does not."""
    deadline = time.monotonic() + START_S
    while (now := state(role)["Status"]) != "running":
        if time.monotonic() > deadline:
            raise TestbedError(f"the container {role} is {now}, expected it to run within {START_S:.0f} s")
        if now == "paused":
            told(role, "unpause")
        elif now in ("exited", "created"):
            told(role, "start")
        time.sleep(POLL_S)


def _asked(question: Any) -> Any:
    extras.require("containers")
    import docker
    from docker.errors import DockerException

    if (problem := prevented()) is not None:
        raise TestbedError(problem)
    try:
        engine = docker.DockerClient(base_url=f"unix://{SOCKET}", timeout=TIMEOUT_S)
        try:
            return question(engine)
        finally:
            engine.close()
    except (DockerException, OSError) as error:
        raise TestbedError(f"the container engine refuses, or does not answer: {error}") from error
