"""``skewed_key``: most records have one key, and so go to one partition.

The model: a customer that is larger than all others, a default value where an id was missing. One partition's task has most of the work
while the others wait; a batch takes as long as its largest part.

Evidence: of what the broker took while it lasted, at least nine tenths of that share went to the key's partition; and the job committed
micro-batches that hold it.
"""

from __future__ import annotations

import zlib
from typing import Any

from pydantic import Field

from streamproof.evidence.folder import RunFolder
from streamproof.faults.fault import EvidenceCheck, Parameters, RunContext, Unconditional
from streamproof.jobs.failpoint import Site
from streamproof.load.gate import HOT_KEY, Orders
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.kafka import Cluster

ORDER = "hot_share"
SEND_S = 90.0


class SkewedKeyParameters(Parameters):
    share: float = Field(0.8, ge=0.1, le=1.0, description="The share of the records that have the one key")


class SkewedKey(Unconditional):
    name = "skewed_key"
    summary = "Send most records under one key, into one partition"
    target = "the source"
    sites: frozenset[Site] = frozenset()
    parameters_model = SkewedKeyParameters

    def batches(self, parameters: SkewedKeyParameters) -> int:
        """Two lie ahead, sent before; one is measured, one is to spare."""
        return 4

    def aim(self, run: RunContext, parameters: SkewedKeyParameters) -> dict[str, Any]:
        return {"role": self.target}

    def inject(self, run: RunContext, parameters: SkewedKeyParameters, target: dict[str, Any]) -> None:
        Orders(run.folder).give(ORDER, parameters.share)
        target["before"] = _ends(
            run, Cluster(run.testbed.direct_kafka)
        )  # a chunk that is just being sent is part of what is measured, and spoils it little

    def evidence(self, run: RunContext, parameters: SkewedKeyParameters, target: dict[str, Any]) -> list[EvidenceCheck]:
        before, needed, cluster = target["before"], run.job.batch_records, Cluster(run.testbed.direct_kafka)
        run.eventually(lambda: sum(_ends(run, cluster).values()) - sum(before.values()) >= needed, SEND_S)
        now = _ends(run, cluster)
        grown = {number: end - before.get(number, 0) for number, end in now.items()}
        partition = str(zlib.crc32(HOT_KEY.encode()) % len(now))
        share = grown[partition] / max(1, sum(grown.values()))
        read = run.eventually(lambda: run.progress.until().get(partition, 0) >= now[partition], SEND_S)
        return [
            EvidenceCheck(
                f"most records went to partition {partition}", share >= parameters.share * 0.9, f"{share:.0%} of {sum(grown.values())}"
            ),
            EvidenceCheck("the job committed them", read, f"up to offset {run.progress.until().get(partition, 0)} of {now[partition]}"),
        ]

    def heal(self, testbed: Testbed, folder: RunFolder, target: dict[str, Any]) -> list[EvidenceCheck]:
        orders = Orders(folder)
        orders.withdraw(ORDER)
        return [EvidenceCheck("the source has no hot key any more", ORDER not in orders.active(), f"orders: {orders.active() or 'none'}")]


def _ends(run: RunContext, cluster: Cluster) -> dict[str, int]:
    return {str(number): end for number, end in cluster.end_offsets(run.job.input_topic).items()}
