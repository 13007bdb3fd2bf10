"""The windows that are seen from outside, held against the failpoints that our own strategies have inside: each of these lies in one."""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise

import pytest

from streamproof.engines.lookup import read_job
from streamproof.engines.spark.registry import STRATEGIES
from streamproof.evidence.journal import FailpointHeld
from streamproof.experiment.model import Experiment
from streamproof.faults import FAULTS
from streamproof.jobs import windows
from streamproof.jobs.windows import Trace
from streamproof.run import runner
from streamproof.testbed.embedded import Testbed

HARMLESS = "network_latency"
BATCH, ROOM = 300, 6


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["two_phase_commit", "postgres_two_phase_commit", "offset_in_transaction"])
def test_every_failpoint_of_a_batch_lies_in_a_window_that_is_seen_from_outside(testbed: Testbed, strategy: str) -> None:
    inside = [point.name for point in STRATEGIES[strategy].failpoints if point.at in FAULTS[HARMLESS].sites]
    faults = [{"fault": HARMLESS, "step": name, "parameters": {"latency_ms": 10}} for name in inside]
    workload = {"source": "synthetic", "records": BATCH * ROOM * (len(inside) + 4)}
    document = {"name": "windows", "strategy": strategy, "trace": True, "batch_records": BATCH, "workload": workload, "faults": faults}
    folder = runner.run(Experiment.model_validate(document))
    steps = Trace(read_job(folder)).all_steps()
    seen = {window.name for window in windows.windows(steps)}
    held = {event.failpoint: datetime.fromisoformat(event.at).timestamp() * 1e9 for event in folder.journal.all(FailpointHeld)}
    assert set(held) == set(inside)
    around = {
        name: next(f"{one.name}{windows.ARROW}{other.name}" for one, other in pairwise(steps) if one.done_ns <= at_ns < other.done_ns)
        for name, at_ns in held.items()
    }
    assert {name: window for name, window in around.items() if window not in seen} == {}, seen
