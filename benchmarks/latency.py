"""From sent to visible, engine by engine: ``make bench-latency``.

Each job of ``chaos/engines/matrix.yaml`` runs once without faults at a steady rate, on the same machine, one after the other. The latency
of a record is the time from its send until a ``read_committed`` reader can see its first copy: the broker's own time of the append, and of
a job that writes in transactions the end of the micro-batch in which it was made, as far as that can be seen from outside. The first and
the last tenth of the records are left out. Words choose engines. Prints a table and writes ``build/bench-latency.json``: a list of
``{engine, guarantee, records, p50_ms, p99_ms}``.

The figures are of one broker and two cores: they compare, and say little of a machine of another size.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from benchmarks import verdicts
from benchmarks.engine_matrix import MATRIX, RUN_S
from benchmarks.verdicts import ROOT
from streamproof import settings
from streamproof.evidence.folder import RunFolder, read_json_lines
from streamproof.evidence.histories import read_evidence
from streamproof.experiment.model import Experiment
from streamproof.jobs.profile import Trait
from streamproof.verdict.timing.recovery import Stamps, ends, flow

RESULTS = ROOT / "build" / "bench-latency.json"
RECORDS, RATE_PER_S, BATCH_RECORDS = 8000, 400, 100
LEFT_OUT = 0.1  # at either end


def main(only: list[str]) -> int:
    results = []
    print("| engine | guarantee | records | p50, ms | p99, ms |\n| --- | --- | --- | --- | --- |")
    for job in yaml.safe_load(MATRIX.read_text())["jobs"]:
        if only and not any(word.lower() in job["engine"].lower() for word in only):
            continue
        result = {"engine": job["engine"], "guarantee": job["guarantee"], **measured(job["experiment"])}
        results.append(result)
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        print(f"| {' | '.join(map(str, result.values()))} |", flush=True)
    return 0


def measured(job: dict[str, Any]) -> dict[str, Any]:
    """One run. Raises RuntimeError unless it came to a verdict."""
    workload = {"source": "synthetic", "records": RECORDS, "partitions": 4, "rate_per_s": RATE_PER_S}
    document = {"name": "latency", **job, "workload": workload, "batch_records": BATCH_RECORDS, "seed": 1}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "experiment.yaml"
        file.write_text(yaml.safe_dump(document))
        verdict, reason = verdicts.of(file, RUN_S)
    if verdict is None or verdict["outcome"] not in ("PASSED", "INCONCLUSIVE"):
        raise RuntimeError(f"{job}: {reason}")
    transactions = Trait.KAFKA_TRANSACTIONS in Experiment.model_validate(document).profile.traits
    waited = latencies(RunFolder.open(settings.runs() / verdict["run"]), transactions)
    return {"records": len(waited), "p50_ms": round(np.percentile(waited, 50)), "p99_ms": round(np.percentile(waited, 99))}


def latencies(folder: RunFolder, transactions: bool) -> np.ndarray:
    """In ms, of the records in the order in which they were sent, without those at either end."""
    evidence = read_evidence(folder)
    decided = ends(folder.journal.events(), list(read_json_lines(folder.progress)))
    kind = Stamps.WRITTEN if transactions else Stamps.VISIBLE
    seen = flow(evidence.sent, evidence.sent_at, evidence.delivered, evidence.delivered_at, decided, kind)
    order = np.argsort(seen.sent, kind="stable")
    left_out = int(len(order) * LEFT_OUT)
    return np.asarray((seen.shown - seen.sent)[order][left_out : len(order) - left_out])


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main(sys.argv[1:]))
