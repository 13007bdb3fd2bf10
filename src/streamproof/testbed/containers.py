"""The containers of the stack, by the container engine's API: Docker's, or podman's, which speaks the same.

The user decides whether a run may use it: it is there when the engine's socket is mounted at ``/run/streamproof/containers.sock``. Whoever
may write to that socket may do anything on its machine, so nothing here looks beyond the containers of the stack's own project: each is
found by the labels that Compose gives it, and a role that has not exactly one container is refused.

Checked against: Docker Engine 20.10 with Compose 2.40, docker (Python) 7.1.
"""

from __future__ import annotations

import json
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
SHAPING_MEMORY = "256m"
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


def memory(role: str) -> dict[str, int]:
    """Of the container, in bytes: ``limit``, and ``used`` by its processes, the kernel's caches not counted."""
    container = of(role)
    stats = _asked(lambda engine: engine.api.stats(container.id, stream=False)["memory_stats"])
    held = stats.get("stats", {})
    used = held.get("rss", held.get("anon", stats.get("usage", 0)))  # by version 1 and 2 of control groups
    return {"limit": int(container.attrs["HostConfig"]["Memory"]), "used": int(used)}


def limit_memory(role: str, size_bytes: int) -> None:
    """Of memory and swap together. Raises TestbedError when more is in use than the kernel can take back."""
    container = of(role)
    _asked(lambda engine: engine.api.update_container(container.id, mem_limit=size_bytes, memswap_limit=size_bytes))


def inside(role: str, command: list[str]) -> str:
    """What a command says that runs in the container, as its user. Raises TestbedError when it fails."""
    container = of(role)
    code, said = _asked(lambda engine: container.exec_run(command))
    if code != 0:
        raise TestbedError(f"in the container {role}: {' '.join(command)[:200]} ended with exit code {code}: {_words(said)}")
    return _words(said)


def begin_inside(role: str, command: list[str]) -> None:
    """The same of a command that nobody waits for."""
    container = of(role)
    _asked(lambda engine: container.exec_run(command, detach=True))


def in_its_network(role: str, order: dict[str, Any]) -> list[dict[str, Any]]:
    """Have what leaves the container shaped (:mod:`streamproof.testbed.shaping`). Raises TestbedError when the kernel refuses."""
    container = of(role)
    return _shaped(f"container:{container.id}", str(container.attrs["Image"]), order)


def shapes(role: str, kind: str) -> bool:
    """Whether the kernel knows this discipline; tried on no network at all, in the image of the container ``role``."""
    try:
        _shaped("none", str(of(role).attrs["Image"]), {"do": "set", "kind": kind, "rate": 1_000_000, "delay": 1000, "interface": "lo"})
    except TestbedError as error:
        if "NetlinkError" in str(error):
            return False
        raise
    return True


def _shaped(network: str, image: str, order: dict[str, Any]) -> list[dict[str, Any]]:
    said = _asked(
        lambda engine: engine.containers.run(
            image,
            ["python", "-m", "streamproof.testbed.shaping", json.dumps(order)],
            network_mode=network,
            user="0:0",
            cap_drop=["ALL"],
            cap_add=["NET_ADMIN"],
            security_opt=["no-new-privileges:true"],
            read_only=True,
            mem_limit=SHAPING_MEMORY,
            remove=True,
        )
    )
    read: list[dict[str, Any]] = json.loads(said)
    return read


def _words(said: bytes) -> str:
    return said.decode(errors="replace").strip()


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
