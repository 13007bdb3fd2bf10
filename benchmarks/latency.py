"""From sent to visible, engine by engine: ``make bench-latency``.

Each job of ``chaos/engines/matrix.yaml`` runs once without faults at a steady rate, on the same machine, one after the other. The latency
of a record is the time from its send until a ``read_committed`` reader can see its first copy: the broker's own time of the append, and of
a job that writes in transactions the end of the micro-batch in which it was made, as far as that can be seen from outside. The records
that are sent before the job has worked off what waited for its start are left out, and the last ones. Words choose engines. Prints a table
and writes ``build/bench-latency.json``: a list of ``{engine, guarantee, records, p50_ms, p99_ms}``.

The figures are of one broker and two cores: they compare, and say little of a machine of another size.
"""

from __future__ import annotations

import json
import os
import sys
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
RECORDS, RATE_PER_S = 18_000, 300
BATCH_RECORDS = 1000  # more than comes while a batch is at work: a micro-batch takes all that there is
START, END = 0.6, 0.9
"""Which share of the records is looked at: after a minute's first half every engine has started, and has worked off what waited for it."""


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
    verdict, reason = verdicts.of_document(document, RUN_S)
    if verdict is None or verdict["outcome"] not in ("PASSED", "INCONCLUSIVE"):
        raise RuntimeError(f"{job}: {reason}")
    transactions = Trait.KAFKA_TRANSACTIONS in Experiment.model_validate(document).profile.traits
    waited = latencies(RunFolder.open(settings.runs() / verdict["run"]), transactions)
    return {"records": len(waited), "p50_ms": round(np.percentile(waited, 50)), "p99_ms": round(np.percentile(waited, 99))}


def latencies(folder: RunFolder, transactions: bool) -> np.ndarray:
    """In ms, of the records in the order in which they were sent, between ``START`` and ``END``."""
    evidence = read_evidence(folder)
    decided = ends(folder.journal.events(), list(read_json_lines(folder.progress)))
    kind = Stamps.WRITTEN if transactions else Stamps.VISIBLE
    seen = flow(evidence.sent, evidence.sent_at, evidence.delivered, evidence.delivered_at, decided, kind)
    order = np.argsort(seen.sent, kind="stable")
    return np.asarray((seen.shown - seen.sent)[order][int(len(order) * START) : int(len(order) * END)])


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main(sys.argv[1:]))
