"""``fresh_checkpoint``: the whole checkpoint is taken away and the driver killed, so that the job begins as a new one.

The model: a checkpoint on a disk of the container that died, one that somebody deleted to get past an error, a bucket with a rule of
expiry. The next start reads the input from its beginning, and counts its batches from 0. What appends writes everything again
-> DUPLICATED. What remembers the query's id does not know the new one -> DUPLICATED. What remembers numbers under a name of its own skips
those that it knows, whatever they hold. What asks the rows (MERGE, upsert) is not harmed.

Done as ``lose_last_commit`` does it: while the driver stands still (SIGSTOP) and nothing is planned behind the last commit.

Evidence: the folder was taken away; the driver's processes are gone, the job was started again and committed a batch, and batch 0 was run
again.
Checked against: Spark 4.1 (a query without a checkpoint starts at ``startingOffsets``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from streamproof.faults.fault import EvidenceCheck, Parameters, RunContext
from streamproof.faults.process.kill_driver import EVIDENCE_S, KillDriver
from streamproof.faults.spark.lose_last_commit import LosesMemory


class FreshCheckpoint(LosesMemory):
    name = "fresh_checkpoint"
    summary = "Take the whole checkpoint away while the driver is stopped, and SIGKILL it: the job begins again from the first record"

    def damage(self, run: RunContext, parameters: Any, checkpoint: Path, batch: int) -> dict[str, Any]:
        away = checkpoint.with_name(f"{checkpoint.name}-taken-away-after-{batch}")
        checkpoint.rename(away)
        return {"away": str(away)}

    def evidence(self, run: RunContext, parameters: Parameters, target: dict[str, Any]) -> list[EvidenceCheck]:
        start = target["start"]

        def anew() -> bool:
            return any(line["batch"] == 0 and line["start"] > start for line in run.progress.lines())

        checks = KillDriver.evidence(self, run, parameters, target)
        again = run.eventually(anew, EVIDENCE_S)
        away = EvidenceCheck("the checkpoint was taken away", Path(target["away"]).is_dir(), target["away"])
        return [away, *checks, EvidenceCheck("batch 0 was run again", again, f"by start {run.progress.last_start()}")]
