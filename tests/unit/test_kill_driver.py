"""When in a micro-batch ``kill_driver`` strikes: nowhere in particular, so that no step of a commit protocol is out of its reach."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from streamproof.evidence.folder import RunFolder
from streamproof.evidence.journal import FailpointHeld
from streamproof.faults.process.kill_driver import drawn_delay_s
from streamproof.jobs.context import RunContext
from tests.support.jobs import run_context, spark_job


@pytest.fixture
def run(tmp_path: Path) -> RunContext:
    folder = RunFolder.create(tmp_path / "run")
    lines = [{"batch": batch, "until": {}, "start": 1, "trigger_ms": 400 if batch < 20 else 2000} for batch in range(25)]
    folder.progress.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return run_context(folder, job=spark_job(folder, "checkpoint"))


def test_it_is_drawn_over_the_length_of_the_last_micro_batches(run: RunContext) -> None:
    drawn = [drawn_delay_s(replace(run, rng=random.Random(seed))) for seed in range(400)]
    assert 0.0 <= min(drawn) < 0.1
    assert 1.9 < max(drawn) <= 2.0
    tenths = [sum(number / 5 <= delay < (number + 1) / 5 for delay in drawn) for number in range(10)]
    assert min(tenths) >= 20, "no part of a batch is left out"


def test_a_seed_draws_the_same_moment(run: RunContext) -> None:
    assert len({drawn_delay_s(replace(run, rng=random.Random(7))) for _ in range(5)}) == 1


def test_a_job_that_is_held_at_a_step_or_has_committed_nothing_is_killed_at_once(run: RunContext, tmp_path: Path) -> None:
    held = FailpointHeld(failpoint="after_output", batch=3, pid=1)
    assert drawn_delay_s(replace(run, held=held)) == 0.0
    folder = RunFolder.create(tmp_path / "new")
    assert drawn_delay_s(run_context(folder, job=spark_job(folder, "checkpoint"))) == 0.0
