"""``kill_driver``: SIGKILL the driver at no step in particular.

The driver is the process that leads the job, with all that it started itself: of a Spark job the JVM and the Python of its driver, of any
other command its process group.

The model: the machine that the driver runs on is taken away. Its trigger is a commit. So that it does not always die early in a
micro-batch, before anything is written, it is killed at a moment that the seed draws over the length of the last batches; ``delay_s`` says
another, and ``crash_at_step`` is for those who want to choose the step. With ``down_s`` it stays down for a while: what waits for the job
elsewhere, as an open transaction of Kafka does, may be over by then.

Evidence: the driver's processes are gone, and the job was started again and committed a batch.
Checked against: Spark 4.1 in client mode (executors end once their driver is gone; the next start goes on from the checkpoint).
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import Any

from pydantic import Field

from streamproof.evidence.folder import RunFolder
from streamproof.faults.fault import DRIVER, EvidenceCheck, Parameters, RunContext, Unconditional
from streamproof.jobs import down
from streamproof.jobs.down import DownS
from streamproof.jobs.profile import Role
from streamproof.testbed import embedded
from streamproof.testbed.embedded import Testbed

EVIDENCE_S = 120.0
LONGEST_S = 30.0
RECENT = 5


class KillDriverParameters(Parameters):
    delay_s: float | None = Field(
        None,
        ge=0.0,
        le=LONGEST_S,
        description="How long after its trigger, which is a commit, it is killed, in s; drawn over a micro-batch when absent",
    )
    down_s: float = DownS


class KillDriver(Unconditional):
    name = "kill_driver"
    summary = "SIGKILL the driver, wherever in a micro-batch it is"
    target = "the driver"
    parameters_model: type[Parameters] = KillDriverParameters
    of_roles = frozenset({Role.DRIVER})
    occupies = frozenset({DRIVER})
    ends_connections = True

    def outside(self, parameters: Any) -> frozenset[embedded.Role]:
        return frozenset()

    def here_only(self, parameters: Any) -> frozenset[Role]:
        return frozenset()

    def aim(self, run: RunContext, parameters: Any) -> dict[str, Any]:
        start, delay_s = run.driver()["start"], parameters.delay_s
        return {
            "role": self.target,
            "start": start,
            "killed": run.recorded(Role.DRIVER),
            "delay_s": drawn_delay_s(run) if delay_s is None else delay_s,
            "down_s": parameters.down_s,
        }

    def inject(self, run: RunContext, parameters: Any, target: dict[str, Any]) -> None:
        run.let_pass(target["delay_s"])
        down.keep_down(run.folder, target["down_s"])
        run.kill(target["killed"])

    def evidence(self, run: RunContext, parameters: Parameters, target: dict[str, Any]) -> list[EvidenceCheck]:
        return gone_and_back(run, target)

    def heal(self, testbed: Testbed, folder: RunFolder, target: dict[str, Any]) -> list[EvidenceCheck]:
        """The supervisor starts the driver again."""
        down.lift(folder)
        return []


def gone_and_back(run: RunContext, target: dict[str, Any]) -> list[EvidenceCheck]:
    """That the driver ``killed`` in a target is gone, and that a start after the one that it was has committed a batch."""
    killed = target["killed"]
    gone = run.eventually(lambda: run.gone(killed), EVIDENCE_S)
    again = run.eventually(lambda: run.progress.last_start() > target["start"], EVIDENCE_S + target.get("down_s", 0.0))
    return [
        EvidenceCheck("the driver's processes are gone", bool(killed) and gone, named(killed)),
        EvidenceCheck("the job was started again and committed a batch", again, f"start {run.progress.last_start()}"),
    ]


def named(victims: Iterable[dict[str, Any]]) -> str:
    """Victims in words: by their pids, or by what a template calls them."""
    return ", ".join(f"pid {victim['pid']}" if "pid" in victim else str(victim["name"]) for victim in victims)


def drawn_delay_s(run: RunContext) -> float:
    """A moment of a micro-batch, drawn from the seed over the length of the last ones; at once where the job is held at a step."""
    lengths_s = [line["trigger_ms"] / 1000 for line in run.progress.lines()[-RECENT:] if line.get("trigger_ms")]
    if run.held is not None or not lengths_s:
        return 0.0
    return round(run.rng.uniform(0.0, min(statistics.median(lengths_s), LONGEST_S)), 3)
