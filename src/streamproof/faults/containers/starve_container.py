"""``starve_container``: a server's container has no more memory, and the kernel kills what holds the most.

The model: a limit that was set too low, a leak in something else that runs in the same pod. The kernel's out-of-memory killer ends the
largest process, which is the server; its container goes on.

The container's limit is lowered to little above what it uses, and small processes in it take the rest. Healing gives the limit back and
starts the server again.

Evidence: the kernel counts the process that it killed, the server's process is gone, a probe gets no answer as long as it is away, the job
commits nothing meanwhile, and goes on afterwards. Checked against: Docker Engine 20.10, Linux 6.1 (control groups, version 1; of version 2
``memory.events`` is read).
"""

from __future__ import annotations

import time
from typing import Any, Literal

from pydantic import Field

from streamproof.evidence.folder import RunFolder
from streamproof.faults.containers.container_outage import ContainerOutage
from streamproof.faults.fault import EvidenceCheck, FaultError, RunContext
from streamproof.faults.outage import OutageParameters, server_process
from streamproof.testbed import containers
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.process import TestbedError, same_process

SPARE_BYTES, EACH_MB, EATERS = 48 << 20, 12, 8
KILLED_S, LOOK_S = 30.0, 0.5
COUNTS = "cat /sys/fs/cgroup/memory/memory.oom_control /sys/fs/cgroup/memory.events 2>/dev/null; true"
EATS = f"import time; held = bytearray({EACH_MB} << 20); held[::4096] = b'1' * len(held[::4096]); time.sleep({KILLED_S / 2})"
"""Each far smaller than the server, so that none of them is what the kernel chooses."""


class StarveParameters(OutageParameters):
    container: Literal["kafka"] = Field("kafka", description="Which container of the stack, by its service's name")


class StarveContainer(ContainerOutage):
    name = "starve_container"
    summary = "Let the container of a server have no more memory, until the kernel kills the server"
    parameters_model = StarveParameters

    def aim(self, run: RunContext, parameters: Any) -> dict[str, Any]:
        role = parameters.container
        memory = containers.memory(role)
        if not memory["limit"]:
            raise FaultError(f"the container {role} has no limit of memory: give it one in docker-compose.yml")
        return {**super().aim(run, parameters), "limit": memory["limit"], "killed": _killed(role), "process": server_process(role)}

    def take_down(self, testbed: Testbed, target: dict[str, Any]) -> None:
        role = target["server"]
        containers.limit_memory(role, containers.memory(role)["used"] + SPARE_BYTES)
        deadline, eaters = time.monotonic() + KILLED_S, 0
        while not self.broken(target):
            if time.monotonic() > deadline:
                raise TestbedError(f"the kernel killed nothing in the container {role} within {KILLED_S:.0f} s of its limit")
            if eaters < EATERS:
                containers.begin_inside(role, ["python", "-c", EATS])
                eaters += 1
            time.sleep(LOOK_S)

    def broken(self, target: dict[str, Any]) -> bool:
        return _killed(target["server"]) > target["killed"] and same_process(target["process"]) is None

    def took_effect(self, run: RunContext, target: dict[str, Any]) -> list[EvidenceCheck]:
        killed = _killed(target["server"]) - target["killed"]
        gone = same_process(target["process"]) is None
        return [
            EvidenceCheck("the kernel killed for want of memory", killed > 0, f"{killed} processes in {target['container']}"),
            EvidenceCheck(f"the process of {target['server']} is gone", gone, f"pid {target['process']['pid']}"),
        ]

    def heal(self, testbed: Testbed, folder: RunFolder, target: dict[str, Any]) -> list[EvidenceCheck]:
        containers.limit_memory(target["server"], target["limit"])
        limit = containers.memory(target["server"])["limit"]
        back = EvidenceCheck("its limit of memory is what it was", limit == target["limit"], f"{limit >> 20} MiB")
        return [back, *super().heal(testbed, folder, target)]


def _killed(role: str) -> int:
    """How many processes of the container the kernel has killed for want of memory."""
    counts = [line.split() for line in containers.inside(role, ["sh", "-c", COUNTS]).splitlines()]
    return sum(int(count[1]) for count in counts if count[:1] == ["oom_kill"])
