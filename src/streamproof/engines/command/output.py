"""How far a job has come, from what it has delivered: for a job that keeps its offsets where nobody else reads them.

The input is read beside the job: each record's identity, partition and offset. The output is read as any reader sees it. A job has passed
over a partition up to the last of its records that was delivered. As long as one before it was not, or was not seen yet, the last record
that there is does not count: the job is not told to end while records are under way.

A record that a job lost never comes. Once the workload is sent and each fault is healed, what is missing after ``SETTLE_S`` in which a
running start delivered nothing new counts as passed over.

This is no offset that the job committed: a line of ``progress.jsonl`` names it ``passed_over``, and has neither ``from`` nor ``until``.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime

from streamproof.engines.command.following import Commit
from streamproof.evidence.folder import EvidenceError
from streamproof.evidence.journal import DriverStarted, InjectionHealed, InjectionStarted, LoadFinished
from streamproof.evidence.locations import Found
from streamproof.jobs.job import Job
from streamproof.sinks import outputs
from streamproof.sinks.kafka.follower import TopicFollower
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.process import TestbedError

SETTLE_S = 60.0
CALM_LOOK_S = 1.0
OUTPUT_LOOK_S = 0.2
SHARE_OF_TIME = 4  # between two looks at the output passes so many times what a look takes
log = logging.getLogger("streamproof.engines.command.output")


class Passed:
    """Which records of the input were delivered, and up to where each partition was passed over. Pure bookkeeping."""

    def __init__(self) -> None:
        self._places: dict[tuple[int, int], tuple[int, int]] = {}
        self._delivered: set[tuple[int, int]] = set()
        self._reached: dict[int, int] = {}
        self._missing: Counter[int] = Counter()
        self.ends: dict[int, int] = {}
        self.seen = 0

    def read(self, identity: Found, partition: int, offset: int) -> None:
        """A record of the input."""
        self.ends[partition] = max(self.ends.get(partition, 0), offset + 1)
        if identity is None or identity in self._places:
            return
        self._places[identity] = (partition, offset)
        if identity in self._delivered:
            self._reach(partition, offset)
        else:
            self._missing[partition] += 1

    def delivered(self, identities: Iterable[Found]) -> None:
        """Records of the output; those of before may be among them."""
        for identity in identities:
            if identity is None or identity in self._delivered:
                continue
            self._delivered.add(identity)
            self.seen += 1
            if identity in self._places:
                partition, offset = self._places[identity]
                self._missing[partition] -= 1
                self._reach(partition, offset)

    def _reach(self, partition: int, offset: int) -> None:
        self._reached[partition] = max(self._reached.get(partition, 0), offset + 1)

    def until(self) -> dict[int, int]:
        """Up to where each partition was passed over."""
        reached = self._reached.items()
        return {partition: min(at, self.ends[partition] - 1) if self._missing[partition] else at for partition, at in sorted(reached)}


class DeliveredRecords:
    """Follows what a job delivers."""

    def __init__(self, job: Job, testbed: Testbed) -> None:
        self._job, self._passed = job, Passed()
        self._input = TopicFollower(testbed.direct_kafka, job.input_topic, f"{job.name}-input-reader", job.location_read)
        self._output = outputs.of(job).follower(job, testbed)
        self._next_look = 0.0
        self._calm: tuple[int, ...] = ()
        self._calm_since = self._calm_looked = time.monotonic()

    def close(self) -> None:
        self._input.close()
        self._output.close()

    def commits(self, committed: Mapping[int, int]) -> Iterator[Commit]:
        """While a server does not answer nothing is known."""
        begun = time.monotonic()
        if begun < self._next_look:
            return
        try:
            for record in self._input.records():
                self._passed.read(*record)
            self._passed.delivered(self._output.identities())
        except (EvidenceError, TestbedError) as error:
            log.debug("what was delivered is not known: %s", error)
        now = time.monotonic()
        self._next_look = now + max(OUTPUT_LOOK_S, SHARE_OF_TIME * (now - begun))
        until = self._passed.ends if self._settled(now) else self._passed.until()
        yield Commit(until, datetime.now(UTC), of_output=True)

    def _settled(self, now: float) -> bool:
        """Whether nothing more is to be expected: see the module."""
        if now >= self._calm_looked + CALM_LOOK_S:
            self._calm_looked = now
            journal = self._job.run.journal
            events = (DriverStarted, InjectionStarted, InjectionHealed, LoadFinished)
            calm = (self._passed.seen, *(len(journal.all(event)) for event in events))
            if calm != self._calm:
                self._calm, self._calm_since = calm, now
        if not self._calm:
            return False
        seen, starts, injected, healed, sent = self._calm
        return bool(seen and starts and sent) and injected == healed and now - self._calm_since > SETTLE_S
