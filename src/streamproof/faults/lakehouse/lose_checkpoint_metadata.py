"""``lose_checkpoint_metadata``: the checkpoint's ``metadata`` and its newest commit are deleted, and the driver killed.

The model: a checkpoint that was restored in part, or copied file by file. Spark does not miss ``metadata``: it gives the query a new id,
without a word, and runs the last batch again. A sink that knows its batches by the query's id (Delta's and Iceberg's own do) takes it for
another query's, and writes it a second time -> DUPLICATED. The ``foreachBatch`` recipes that name the job themselves are not harmed.

Done as ``lose_last_commit`` does it: while the driver stands still (SIGSTOP) and nothing is planned behind the last commit.

Evidence: as of ``lose_last_commit``, and the query has another id than before.
Checked against: Spark 4.1 (``StreamExecution.streamMetadata``: read, or made anew), apache/spark#53844.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

from streamproof.faults.fault import EvidenceCheck, Parameters, RunContext
from streamproof.faults.spark.lose_last_commit import LosesMemory, deleted

METADATA = "metadata"


class LoseCheckpointMetadata(LosesMemory):
    name = "lose_checkpoint_metadata"
    summary = "Delete the checkpoint's metadata and its newest commit, and SIGKILL the driver: the batch runs again, as another query's"

    def damage(self, run: RunContext, parameters: Any, checkpoint: Path, batch: int) -> dict[str, Any]:
        before = _query(checkpoint)
        return {"query": before, "lost": deleted(checkpoint, METADATA), **super().damage(run, parameters, checkpoint, batch)}

    def evidence(self, run: RunContext, parameters: Parameters, target: dict[str, Any]) -> list[EvidenceCheck]:
        checks = super().evidence(run, parameters, target)
        now = _query(Path(target["checkpoint"]))
        other = now is not None and now != target["query"]
        gone = EvidenceCheck("the checkpoint's metadata was deleted", target["lost"], f"the query's id was {target['query']}")
        return [gone, *checks, EvidenceCheck("the query has another id", other, f"it is {now}")]


def _query(checkpoint: Path) -> str | None:
    """The id of the query that the checkpoint is of."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        return str(json.loads((checkpoint / METADATA).read_text())["id"])
    return None
