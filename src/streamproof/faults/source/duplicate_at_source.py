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
from streamproof.faults.fault import EvidenceCheck, Parameters, RunContext, Unconditional
from streamproof.jobs.failpoint import Site
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
    sites: frozenset[Site] = frozenset()
    parameters_model = DuplicateAtSourceParameters

    def batches(self, parameters: DuplicateAtSourceParameters) -> int:
        """Two lie ahead, sent before; one to spare."""
        return parameters.size + 3

    def aim(self, run: RunContext, parameters: DuplicateAtSourceParameters) -> dict[str, Any]:
        return {"role": self.target, "before": _twice(run), "wanted": parameters.size * run.job.batch_records}

    def inject(self, run: RunContext, parameters: DuplicateAtSourceParameters, target: dict[str, Any]) -> None:
        orders, count = Orders(run.folder), target["wanted"]
        orders.give(ORDER, 1)
        run.wait_for(f"{count} records to be sent twice", lambda: _twice(run) - target["before"] >= count, SEND_S)
        orders.withdraw(ORDER)

    def evidence(self, run: RunContext, parameters: DuplicateAtSourceParameters, target: dict[str, Any]) -> list[EvidenceCheck]:
        cluster = Cluster(run.testbed.direct_kafka)

        def in_topic() -> int:
            return sum(cluster.end_offsets(run.job.input_topic).values())

        def surplus() -> int:
            return in_topic() - _events(run)

        # A chunk that is just being sent was written down before it is there.
        there = run.eventually(lambda: surplus() >= _twice(run), SEND_S)
        twice, end = _twice(run), in_topic()
        read = run.eventually(lambda: run.progress.committed() >= end, SEND_S)
        return [
            EvidenceCheck("records were sent twice", twice - target["before"] >= target["wanted"], f"{twice - target['before']} so far"),
            EvidenceCheck("the topic holds as many more than there were events", there, f"{surplus()} more than {_events(run)}"),
            EvidenceCheck("the job committed them", read, f"{run.progress.committed()} of {end}"),
        ]

    def heal(self, testbed: Testbed, folder: RunFolder, target: dict[str, Any]) -> list[EvidenceCheck]:
        orders = Orders(folder)
        orders.withdraw(ORDER)
        return [EvidenceCheck("the source sends once again", ORDER not in orders.active(), f"orders: {orders.active() or 'none'}")]


def _intents(run: RunContext) -> list[dict[str, int]]:
    return [dict(intent) for intent in read_json_lines(run.folder.intents)]


def _events(run: RunContext) -> int:
    """How many events were to be sent so far, each counted once."""
    return max((intent["first"] + intent["count"] for intent in _intents(run)), default=0)


def _twice(run: RunContext) -> int:
    """How many of the records that were to be sent so far are second sends."""
    return sum(intent["count"] for intent in _intents(run)) - _events(run)
