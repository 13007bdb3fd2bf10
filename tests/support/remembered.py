"""Runs for tests of the history: rows made by hand, and folders as a run's stages would have left them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from streamproof.evidence import manifest
from streamproof.evidence.folder import RunFolder
from streamproof.experiment.model import Experiment
from streamproof.experiment.schedule import plan
from streamproof.history.record import Run
from streamproof.verdict.decide import RunOutcome
from streamproof.verdict.judge import judge
from tests.support.histories import SPEC, Story, at

BEGUN = datetime(2026, 11, 1, 2, tzinfo=UTC)
RUN = Run(
    run="night-0",
    folder="/nowhere/night-0",
    experiment="nightly",
    began_at=BEGUN,
    duration_s=17.5,
    pipeline="kafka_to_kafka",
    strategy="two_phase_commit",
    guarantee="exactly-once",
    faults="kill_executor(count=1)",
    fault_names=("kill_executor",),
    seed=7,
    settings={"brokers": 1, "workload": {"records": 20_000, "partitions": 4}, "batch_records": None},
    versions={"pyspark": "4.1.3", "kafka": "4.1.0"},
    outcome=RunOutcome.PASSED,
    reason="two_phase_commit kept exactly-once for 20000 acknowledged records",
    anomalies={"LOST": 0, "DUPLICATED": 0, "PHANTOM": 0, "CORRUPTED": 0},
    expected=(),
    acked=20_000,
    delivered=20_000,
    recovery_s=2.0,
    caught_up_s=3.0,
    longest_gap_s=2.5,
    output_s=9.0,
    records_per_s={"steady": 5000.0, "impact": 2000.0, "recovery": 4000.0},
    driver_starts=1,
    batches=12,
    stage_seconds={"prepare": 0.3, "drain": 0.5},
)
OUTCOMES = {"P": RunOutcome.PASSED, "F": RunOutcome.FAILED, "I": RunOutcome.INCONCLUSIVE, "E": RunOutcome.ERROR, "A": RunOutcome.ABORTED}
REASONS = {
    "F": "two_phase_commit broke exactly-once: 3 LOST",
    "I": "kill_executor-1 did not take effect",
    "E": "stage drain failed",
    "A": "stopped",
}


def night(number: int, outcome: str = "P", **fields: Any) -> Run:
    """The run of the n-th night; ``outcome`` is its first letter."""
    told = {"outcome": OUTCOMES[outcome], "reason": REASONS.get(outcome, RUN.reason)}
    name = f"night-{number}"
    return replace(RUN, **{"run": name, "folder": f"/nowhere/{name}", "began_at": BEGUN + timedelta(days=number), **told, **fields})


def nights(outcomes: Iterable[str], **fields: Any) -> list[Run]:
    return [night(number, outcome, **fields) for number, outcome in enumerate(outcomes)]


def write(runs: Path, name: str, *, began: float = 0, outcome: str | None = None, story: Story | None = None, **fields: Any) -> RunFolder:
    """A run's folder in ``runs``, judged; it began ``began`` seconds after that day."""
    found = Experiment.model_validate(
        {"name": "test", "strategy": "two_phase_commit", "faults": [{"fault": "kill_executor"}], "seed": 7, **fields}
    )
    story = story or Story()
    for line in story.progress:
        line.setdefault("started_at", line["committed_at"])  # the report draws it
    folder = story.write(runs / name)
    created = {"at": at(began), "event": "run_created", "run": name, "seed": found.seed}
    folder.journal.path.write_text(json.dumps(created) + "\n" + folder.journal.path.read_text())
    folder.experiment.write_text(found.to_yaml())
    folder.schedule.write_text(plan(found).to_json())
    manifest.write(folder)
    verdict = judge(folder, replace(SPEC, run=name, strategy=found.strategy, guarantee=found.promised, seed=found.seed)).verdict.to_json()
    folder.verdict.write_text(json.dumps(verdict if outcome is None else {**verdict, "outcome": outcome}))
    return folder
