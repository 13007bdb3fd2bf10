"""``pause_container``: freeze the container of a server for a while, then let it go on.

The model: a virtual machine that is moved, a node that has no processor time left. Every process in the container stands still; connections
stay open.

Evidence: the engine says that it is paused, a probe gets no answer as long as it is, the job commits nothing meanwhile, and goes on
afterwards. Checked against: Docker Engine 20.10 (the kernel's freezer).
"""

from __future__ import annotations

from typing import Any

from streamproof.faults.containers.container_outage import ContainerOutage
from streamproof.testbed import containers
from streamproof.testbed.embedded import Testbed


class PauseContainer(ContainerOutage):
    name = "pause_container"
    summary = "Freeze the container of a server for a while"
    is_called = "paused"

    def take_down(self, testbed: Testbed, target: dict[str, Any]) -> None:
        containers.told(target["server"], "pause")

    def broken(self, target: dict[str, Any]) -> bool:
        return bool(containers.state(target["server"])["Status"] == "paused")
