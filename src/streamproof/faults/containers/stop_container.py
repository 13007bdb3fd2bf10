"""``stop_container``: stop the container of a server in good order, and start it again.

The model: a rolling update, a drained node. The server is told to end, and is given its time.

Evidence: the engine says that it exited, a probe gets no answer as long as it is away, the job commits nothing meanwhile, and goes on
afterwards. Checked against: Docker Engine 20.10.
"""

from __future__ import annotations

from typing import Any

from streamproof.faults.containers.container_outage import ContainerOutage
from streamproof.testbed import containers
from streamproof.testbed.embedded import Testbed


class StopContainer(ContainerOutage):
    name = "stop_container"
    summary = "Stop the container of a server in good order; it is started again"
    is_called = "stopped"

    def take_down(self, testbed: Testbed, target: dict[str, Any]) -> None:
        containers.told(target["server"], "stop")

    def broken(self, target: dict[str, Any]) -> bool:
        state = containers.state(target["server"])
        return bool(state["Status"] == "exited" and state["ExitCode"] != containers.KILLED)
