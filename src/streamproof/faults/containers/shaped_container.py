"""What faults share that have the kernel shape what leaves a server's container (:mod:`streamproof.testbed.shaping`).

Toxiproxy delays and cuts streams; here packets are held or lost, as on a network, and TCP has to bear it. All that the server sends is
struck, whoever it is for.
"""

from __future__ import annotations

import random
from typing import Any, Literal

from pydantic import Field

from streamproof.evidence.folder import RunFolder
from streamproof.faults.fault import EvidenceCheck, FaultError, Parameters, RunContext, Unconditional
from streamproof.jobs.profile import KAFKA
from streamproof.testbed import containers
from streamproof.testbed.embedded import Role, Testbed

BATCH_S = 180.0


class ShapedParameters(Parameters):
    container: Literal["kafka"] = Field("kafka", description="Which container of the stack, by its service's name")
    batches: int = Field(2, ge=1, le=100, description="How many micro-batches are committed before it is healed")


class ShapedContainer(Unconditional):
    """Subclasses say which discipline, and which of the kernel's counters shows that it did something."""

    name: str
    summary: str
    target = "a container of the stack"
    kind: Literal["tbf", "netem"]
    counter: Literal["overlimits", "drops"]
    shows: str
    """What that counter counts, in words."""
    parameters_model: type[Parameters] = ShapedParameters
    occupies = frozenset({KAFKA, "the link to kafka"})
    background = True

    def prevented(self) -> str | None:
        return containers.prevented()

    def outside(self, parameters: Any) -> frozenset[Role] | None:
        return None

    def draw(self, rng: random.Random, profile: Any) -> dict[str, Any] | None:
        """Not for chance: a schedule is drawn where the run may be planned for another machine."""
        return None

    def batches(self, parameters: Any) -> int:
        return int(parameters.batches) + 2

    def settings(self, parameters: Any) -> dict[str, Any]:
        """Of the discipline, in the units of :mod:`streamproof.testbed.shaping`."""
        raise NotImplementedError

    def aim(self, run: RunContext, parameters: Any) -> dict[str, Any]:
        there = [one for one in containers.in_its_network(parameters.container, {"do": "show"}) if one["kind"] == self.kind]
        if there:
            raise FaultError(f"the network of the container {parameters.container} is shaped already: {there}")
        return {"role": self.target, "server": parameters.container, "container": containers.of(parameters.container).name}

    def inject(self, run: RunContext, parameters: Any, target: dict[str, Any]) -> None:
        containers.in_its_network(target["server"], {"do": "set", "kind": self.kind, **self.settings(parameters)})

    def evidence(self, run: RunContext, parameters: Any, target: dict[str, Any]) -> list[EvidenceCheck]:
        begin = run.progress.batches() + 1  # the batch in flight began without it
        felt = self.felt(run, parameters, target)
        under = run.eventually(lambda: run.progress.batches() >= begin + parameters.batches, BATCH_S)
        shaped = [one for one in containers.in_its_network(target["server"], {"do": "show"}) if one["kind"] == self.kind]
        count = sum(one[self.counter] for one in shaped)
        return [
            EvidenceCheck(f"the kernel's {self.kind} reads back", self.reads_back(parameters, shaped), f"{shaped}"),
            *felt,
            EvidenceCheck(f"{self.shows}, as the kernel counts", count > 0, f"{count} times"),
            EvidenceCheck(
                f"{parameters.batches} micro-batches were committed under it", under, f"{max(0, run.progress.batches() - begin)}"
            ),
        ]

    def reads_back(self, parameters: Any, shaped: list[dict[str, Any]]) -> bool:
        return bool(shaped)

    def felt(self, run: RunContext, parameters: Any, target: dict[str, Any]) -> list[EvidenceCheck]:
        """What a probe feels of it, where one can be sent."""
        return []

    def heal(self, testbed: Testbed, folder: RunFolder, target: dict[str, Any]) -> list[EvidenceCheck]:
        left = containers.in_its_network(target["server"], {"do": "clear"})
        ours = [one for one in left if one["kind"] == self.kind]
        return [EvidenceCheck("the container's network is no longer shaped", not ours, f"{[one['kind'] for one in left]}")]
