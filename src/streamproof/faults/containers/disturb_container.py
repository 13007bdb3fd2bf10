"""``disturb_container``: of the packets that a server sends some are lost, come twice, or come out of order.

The model: a bad cable, a switch whose buffers are full, routes that change. TCP hides it from the programs, at a price: it waits, sends
again, and sends less.

Evidence: the kernel's netem reads back, it counts packets that it dropped, and the job commits under it. A kernel without netem refuses,
before the run begins. Checked against: tc-netem(8); the kernels at hand had none, so there only the refusal was seen.
"""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field, model_validator

from streamproof.faults.containers.shaped_container import ShapedContainer, ShapedParameters
from streamproof.jobs.profile import KAFKA
from streamproof.testbed import containers

REORDER_DELAY_US = 10_000
"""What is not sent out of order waits so long."""


class DisturbParameters(ShapedParameters):
    loss_percent: float = Field(5.0, gt=0, le=50, description="How many of the packets are lost")
    duplicate_percent: float = Field(0.0, ge=0, le=50, description="How many of them come twice")
    reorder_percent: float = Field(0.0, ge=0, le=50, description="How many of them overtake others")

    @model_validator(mode="after")
    def _some_arrive(self) -> Self:
        if self.loss_percent + self.duplicate_percent + self.reorder_percent > 90:
            raise ValueError("expected at least 10 percent of the packets to come as they were sent")
        return self


class DisturbContainer(ShapedContainer):
    name = "disturb_container"
    summary = "Have packets that the container of a server sends lost, doubled, or out of order"
    kind = "netem"
    counter = "drops"
    shows = "packets were lost"
    parameters_model = DisturbParameters

    def prevented(self) -> str | None:
        if (reason := super().prevented()) is not None or containers.shapes(KAFKA, self.kind):
            return reason
        return "the kernel of the containers' machine has no netem (CONFIG_NET_SCH_NETEM): load sch_netem there, or use network_latency"

    def settings(self, parameters: DisturbParameters) -> dict[str, Any]:
        return {
            "loss": parameters.loss_percent,
            "duplicate": parameters.duplicate_percent,
            "reorder": parameters.reorder_percent,
            "delay": REORDER_DELAY_US if parameters.reorder_percent else 0,
        }
