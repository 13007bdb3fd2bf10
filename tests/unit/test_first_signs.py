"""When a job that shows no progress is given up: not while it computes, waits for the machine, or loads something."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import deque

import psutil
import pytest

from streamproof.run.first_signs import IDLE_S, Sample, idle, sample


def _seen(seconds: float, cpu_a_second: float = 0.0, busy_every: int = 0, begun: float = 100.0) -> deque[Sample]:
    count = int(seconds) + 1
    return deque(Sample(begun + at, {1: 5 + at * cpu_a_second}, bool(busy_every) and at % busy_every == 0) for at in range(count))


@pytest.mark.parametrize(
    ("samples", "stands_idle"),
    [
        (_seen(IDLE_S - 2), False),
        (_seen(IDLE_S), True),
        (_seen(IDLE_S, cpu_a_second=0.05), True),
        (_seen(IDLE_S, cpu_a_second=0.4), False),
        (_seen(IDLE_S, busy_every=2), False),
        (_seen(IDLE_S, busy_every=10), True),
        (deque(), False),
    ],
)
def test_a_job_is_idle_that_neither_computes_nor_waits_for_the_machine(samples: deque[Sample], stands_idle: bool) -> None:
    assert idle(samples) is stands_idle


def test_a_process_that_began_meanwhile_counts_with_all_that_it_computed() -> None:
    samples = _seen(IDLE_S)
    samples[-1].cpu_s[2] = 30.0
    assert not idle(samples)


def test_what_waits_for_the_processor_is_seen() -> None:
    """Whatever else the machine does: a process that computes is running, or waits for its turn."""
    for code, busy in (("while True: pass", True), ("import time; time.sleep(60)", False)):
        child = psutil.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL)
        try:
            until = time.monotonic() + 20
            while sample(0.0, [child], False).waits is not busy:
                assert time.monotonic() < until, code
                time.sleep(0.05)
            seen = [sample(0.0, [child], False) for _ in range(5)]
            assert [each.waits for each in seen] == [busy] * 5
        finally:
            child.kill()
            child.wait(10)
    assert sample(0.0, [child], False) == Sample(0.0, {}, False), "a process that is gone does nothing"
    assert sample(0.0, [], True).waits
