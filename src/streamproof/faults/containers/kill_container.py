"""``kill_container``: SIGKILL the container of a server, and start it again on the data it left.

The model: a node is lost, an orchestrator evicts a pod. All that runs in the container is gone at once, and the container itself is down
until somebody starts it.

Evidence: the engine says that it exited by SIGKILL, a probe gets no answer as long as it is away, the job commits nothing meanwhile, and
goes on afterwards. Checked against: Docker Engine 20.10.
"""

from __future__ import annotations

from typing import Any

from streamproof.faults.containers.container_outage import ContainerOutage
from streamproof.testbed import containers
from streamproof.testbed.embedded import Testbed


class KillContainer(ContainerOutage):
    name = "kill_container"
    summary = "SIGKILL the container of a server, with all that runs in it; it is started again"
    is_called = "killed"

    def take_down(self, testbed: Testbed, target: dict[str, Any]) -> None:
        containers.told(target["server"], "kill")

    def broken(self, target: dict[str, Any]) -> bool:
        state = containers.state(target["server"])
        return bool(state["Status"] == "exited" and state["ExitCode"] == containers.KILLED)
