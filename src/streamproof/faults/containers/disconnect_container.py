"""``disconnect_container``: take the container of a server from its network for a while, then connect it again.

The model: a cable that is pulled, a network policy gone wrong. The server runs, and nobody reaches it: not even its name is found. Packets
to it are lost, without a word to those who have a connection.

Evidence: the engine says that it is on no network, a probe gets no answer as long as it is away, the job commits nothing meanwhile, and
goes on afterwards. Checked against: Docker Engine 20.10 (the container's names on the network must be given again).
"""

from __future__ import annotations

from typing import Any

from streamproof.faults.containers.container_outage import ContainerOutage
from streamproof.testbed import containers
from streamproof.testbed.embedded import Testbed


class DisconnectContainer(ContainerOutage):
    name = "disconnect_container"
    summary = "Take the container of a server from its network for a while"
    is_called = "disconnected"

    def take_down(self, testbed: Testbed, target: dict[str, Any]) -> None:
        for network in target["networks"]:
            containers.disconnect(target["server"], network)

    def broken(self, target: dict[str, Any]) -> bool:
        return not containers.networks(target["server"])

    def undo(self, testbed: Testbed, target: dict[str, Any]) -> None:
        there = containers.networks(target["server"])
        for network, aliases in target["networks"].items():
            if network not in there:
                containers.connect(target["server"], network, aliases)
        super().undo(testbed, target)
