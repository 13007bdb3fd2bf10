"""The steady state is asked of the real components, the way a job asks them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil
import pytest

from streamproof.run import steady_state
from streamproof.testbed import embedded
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.process import TestbedError, remembered

KAFKA, SPARK, POSTGRES = (
    "Kafka answers through its proxies",
    "Spark's master lists its workers as ALIVE",
    "PostgreSQL answers through its proxy",
)


PATIENT_S = steady_state.WAIT_S


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steady_state, "WAIT_S", 2.0)


def _wanting(testbed: Testbed, monkeypatch: pytest.MonkeyPatch | None = None) -> list[str]:
    """What does not hold; with ``monkeypatch`` after as long a wait as a run has."""
    if monkeypatch is not None:
        monkeypatch.setattr(steady_state, "WAIT_S", PATIENT_S)
    return [check.check for check in steady_state.check(testbed) if not check.passed]


@contextmanager
def _paused(role: str) -> Iterator[None]:
    handle = remembered(role, embedded.folder())
    assert handle is not None
    server = psutil.Process(handle.pid)
    family = [server, *server.children(recursive=True)]
    for process in family:
        os.kill(process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in family:
            with suppress(ProcessLookupError):  # PostgreSQL's for one connection is gone with it
                os.kill(process.pid, signal.SIGCONT)


def test_a_testbed_that_is_up_is_in_its_steady_state(testbed: Testbed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steady_state, "WAIT_S", PATIENT_S)
    assert [check.check for check in steady_state.require(testbed)] == [KAFKA, SPARK, POSTGRES]


@pytest.mark.parametrize(("role", "check"), [("kafka", KAFKA), ("spark-worker-1", SPARK), ("postgres", POSTGRES)])
def test_what_stands_still_is_named_and_nothing_else(testbed: Testbed, role: str, check: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with _paused(role):
        assert _wanting(testbed) == [check]
        with pytest.raises(TestbedError, match=check):
            steady_state.require(testbed)
    assert _wanting(testbed, monkeypatch) == []


def test_a_link_that_is_cut_is_no_steady_state_though_the_server_runs(testbed: Testbed, monkeypatch: pytest.MonkeyPatch) -> None:
    testbed.proxies.disable("kafka-executors")
    try:
        assert _wanting(testbed) == [KAFKA]
    finally:
        testbed.proxies.reset("kafka-executors")
    assert _wanting(testbed, monkeypatch) == []
