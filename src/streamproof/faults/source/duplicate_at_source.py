"""``duplicate_at_source``: the producer sends some of its records twice.

The model: an application that sends a batch again because it did not wait long enough for the answer, a replay that overlaps. The topic
holds the same event twice, under the same key. That is nothing a pipeline can be blamed for: what it promises, it promises for the records
that it reads, so each of the two is to be delivered as often as any other.

Each of the two has an identity of its own (the second is that of another producer) and so the checker expects both, once. A pipeline that
takes the second for a repetition by its content, and drops it, is seen as losing it.

Evidence: the second sends were written down, the topic holds as many records more than there were events, and the job committed them.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from streamproof.evidence.folder import RunFolder, read_json_lines
from streamproof.faults.fault import Claim, Parameters, Scene, Unconditional
from streamproof.load.gate import Orders
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.kafka import Cluster

ORDER = "twice"
SEND_S = 90.0


class DuplicateAtSourceParameters(Parameters):
    size: int = Field(1, ge=1, le=1000, description="As many records as so many micro-batches hold are sent twice, at least")


class DuplicateAtSource(Unconditional):
    name = "duplicate_at_source"
    summary = "Let the producer send some records twice"
    target = "the source"
    parameters_model = DuplicateAtSourceParameters

    def batches(self, parameters: DuplicateAtSourceParameters) -> int:
        """Two lie ahead, sent before; one to spare."""
        return parameters.size + 3

    def aim(self, scene: Scene, parameters: DuplicateAtSourceParameters) -> dict[str, Any]:
        return {"role": self.target, "before": _twice(scene), "wanted": parameters.size * scene.job.batch_records}

    def inject(self, scene: Scene, parameters: DuplicateAtSourceParameters, target: dict[str, Any]) -> None:
        orders, wanted = Orders(scene.folder), target["wanted"]
        orders.give(ORDER, 1)
        scene.wait_for(f"{wanted} records to be sent twice", lambda: _twice(scene) - target["before"] >= wanted, SEND_S)
        orders.withdraw(ORDER)

    def evidence(self, scene: Scene, parameters: DuplicateAtSourceParameters, target: dict[str, Any]) -> list[Claim]:
        cluster = Cluster(scene.testbed.direct_kafka)

        def in_topic() -> int:
            return sum(cluster.end_offsets(scene.job.input_topic).values())

        def surplus() -> int:
            return in_topic() - _events(scene)

        # A chunk that is just being sent was written down before it is there.
        there = scene.eventually(lambda: surplus() >= _twice(scene), SEND_S)
        twice, end = _twice(scene), in_topic()
        read = scene.eventually(lambda: scene.progress.committed() >= end, SEND_S)
        return [
            Claim("records were sent twice", twice - target["before"] >= target["wanted"], f"{twice - target['before']} so far"),
            Claim("the topic holds as many more than there were events", there, f"{surplus()} more than {_events(scene)}"),
            Claim("the job committed them", read, f"{scene.progress.committed()} of {end}"),
        ]

    def heal(self, testbed: Testbed, folder: RunFolder, target: dict[str, Any]) -> list[Claim]:
        orders = Orders(folder)
        orders.withdraw(ORDER)
        return [Claim("the source sends once again", ORDER not in orders.given(), f"orders: {orders.given() or 'none'}")]


def _intents(scene: Scene) -> list[dict[str, int]]:
    return [dict(intent) for intent in read_json_lines(scene.folder.intents)]


def _events(scene: Scene) -> int:
    """How many events were to be sent so far, each counted once."""
    return max((intent["first"] + intent["count"] for intent in _intents(scene)), default=0)


def _twice(scene: Scene) -> int:
    """How many of the records that were to be sent so far are second sends."""
    return sum(intent["count"] for intent in _intents(scene)) - _events(scene)
