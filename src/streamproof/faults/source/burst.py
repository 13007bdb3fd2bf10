"""``burst``: the source sends much more at once than the job keeps up with.

The model: a source that was held back and catches up, a campaign, a replay. Batches are bounded (``maxOffsetsPerTrigger``), so they do not
grow, but the backlog does: what assumes that a record is read soon after it was written (retention, a transaction's timeout, a watermark)
is put to the test.

The gate, which keeps the workload a little ahead of the job, is opened by so many micro-batches more.

Evidence: the backlog, the broker's end offsets less what the job has committed, came to nearly all of that; and the job worked it off down
to what lies ahead of it otherwise.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from streamproof.evidence.folder import RunFolder
from streamproof.faults.fault import EvidenceCheck, Parameters, RunContext, Unconditional
from streamproof.jobs.failpoint import Site
from streamproof.load.gate import Gate
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.kafka import Cluster

GROW_S = 60.0
WORK_OFF_S = 180.0


class BurstParameters(Parameters):
    size: int = Field(2, ge=2, le=1000, description="How many micro-batches of records are sent at once, beyond those that lie ahead")


class Burst(Unconditional):
    name = "burst"
    summary = "Send the records of many micro-batches at once"
    target = "the source"
    sites: frozenset[Site] = frozenset()
    parameters_model = BurstParameters

    def batches(self, parameters: BurstParameters) -> int:
        return parameters.size + 2

    def aim(self, run: RunContext, parameters: BurstParameters) -> dict[str, Any]:
        return {"role": self.target, "gate": Gate(run.folder).read(), "backlog": _Backlog(run).records()}

    def inject(self, run: RunContext, parameters: BurstParameters, target: dict[str, Any]) -> None:
        ahead = int(target["gate"]["ahead"] or 0)
        target["ahead"] = ahead
        Gate(run.folder).open_to(run.progress.committed() + ahead + parameters.size * run.job.batch_records)

    def evidence(self, run: RunContext, parameters: BurstParameters, target: dict[str, Any]) -> list[EvidenceCheck]:
        # The job may commit a batch while they are sent.
        needed = int(target["ahead"]) + (parameters.size - 1) * run.job.batch_records
        backlog, sizes = _Backlog(run), [int(target["backlog"])]

        def grown() -> bool:
            sizes.append(backlog.records())
            return sizes[-1] >= needed

        grew = run.eventually(grown, GROW_S)
        off = run.eventually(lambda: backlog.records() <= target["ahead"], WORK_OFF_S)
        return [
            EvidenceCheck(f"the backlog came to {needed} records", grew, f"{target['backlog']} before, {max(sizes)} at most"),
            EvidenceCheck("the job worked it off", off, f"{backlog.records()} now, {target['ahead']} lie ahead of it otherwise"),
        ]

    def heal(self, testbed: Testbed, folder: RunFolder, target: dict[str, Any]) -> list[EvidenceCheck]:
        gate = Gate(folder)
        gate.open_to(**target["gate"])
        return [EvidenceCheck("the gate is as it was", gate.read() == target["gate"], f"{gate.read()}")]


class _Backlog:
    """What lies in the input that the job has not committed."""

    def __init__(self, run: RunContext) -> None:
        self._run, self._cluster = run, Cluster(run.testbed.direct_kafka)

    def records(self) -> int:
        return sum(self._cluster.end_offsets(self._run.job.input_topic).values()) - self._run.progress.committed()
