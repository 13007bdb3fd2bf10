"""Whether the testbed is in its steady state: what a job needs of it answers, the way a job asks. Cheap enough for after each heal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from streamproof.evidence.folder import RunFolder
from streamproof.evidence.journal import EvidenceCheck
from streamproof.faults.outage import answers
from streamproof.jobs.job import Job
from streamproof.sinks import outputs
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.process import TestbedError

WAIT_S = 30.0
POLL_S = 0.1


def check(testbed: Testbed, folder: RunFolder | None = None) -> list[EvidenceCheck]:
    """What holds of the testbed, each waited for until ``WAIT_S`` from now; with ``folder`` only what that run's job needs of it."""
    deadline = time.monotonic() + WAIT_S
    conditions = _conditions(testbed, folder)
    return [EvidenceCheck(statement, _comes_true(condition, deadline), detail) for statement, condition, detail in conditions]


def require(testbed: Testbed) -> list[EvidenceCheck]:
    """All of :func:`check`, which must hold. Raises TestbedError naming what does not."""
    checks = check(testbed)
    wanting = [f"{check.check} ({check.detail})" for check in checks if not check.passed]
    if wanting:
        raise TestbedError(f"not so within {WAIT_S:.0f} s: {'; '.join(wanting)}")
    return checks


def _conditions(testbed: Testbed, folder: RunFolder | None) -> Iterator[tuple[str, Callable[[], bool], str]]:
    kafka, server, master = testbed.kafka_links(), testbed.pipeline_server, testbed.spark_master
    postgres = f"{server.host}:{server.port}"
    yield "Kafka answers through its proxies", lambda: all(answers("kafka", listener) for listener in kafka.values()), ", ".join(kafka)
    yield "Spark's master lists its workers as ALIVE", testbed.spark_is_ready, master
    if folder is None or "postgres" in outputs.of(Job.read(folder)).links:
        yield "PostgreSQL answers through its proxy", lambda: answers("postgres", postgres), postgres


def _comes_true(condition: Callable[[], bool], deadline: float) -> bool:
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True
