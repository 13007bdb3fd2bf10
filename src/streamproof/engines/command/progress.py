"""How far a job has come, from the committed offsets of its consumer group, asked of Kafka beside the proxies.

What is committed between two looks counts as one micro-batch: a line of ``progress.jsonl``, stamped when it was seen, a moment after
it was committed. It counts as begun when the one before it was seen. A start that has committed something is ready (``driver_ready``).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING

from streamproof.evidence.folder import append_json_line
from streamproof.evidence.journal import DriverReady, DriverStarted
from streamproof.evidence.progress import Progress
from streamproof.jobs.job import Job
from streamproof.testbed.kafka import Cluster
from streamproof.testbed.process import TestbedError

if TYPE_CHECKING:
    from confluent_kafka import Consumer

LOOK_S = 0.05
COUNT_S = 1.0
ANSWER_S = 5.0
END_S = 10.0
log = logging.getLogger("streamproof.engines.command.progress")


class GroupProgress:
    """Follows one job in a thread while it is entered."""

    def __init__(self, job: Job, bootstrap: str) -> None:
        from confluent_kafka import Consumer

        self._job, self._cluster = job, Cluster(bootstrap)
        settings = {"bootstrap.servers": bootstrap, "group.id": job.name, "isolation.level": "read_committed", "log_level": 2}
        self._consumer: Consumer = Consumer({**settings, "enable.auto.commit": False})
        progress = Progress(job.run)
        self._committed = {int(partition): offset for partition, offset in progress.until().items()}
        self._batch, self._ready = progress.batches(), 0
        self._since = datetime.now(UTC)
        self._count, self._counted_at = 0, -COUNT_S  # how many partitions the input has, and when that was asked
        self._done = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._follow, name="progress", daemon=True)

    def __enter__(self) -> Callable[[], None]:
        self._thread.start()
        return self._check

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._done.set()
        self._thread.join(END_S)
        self._consumer.close()
        if error is None:
            self._check()

    def _follow(self) -> None:
        try:
            while not self._done.wait(LOOK_S):
                self._look()
            self._look()
        except BaseException as failure:  # noqa: BLE001 - it is raised again where the run waits for it
            self._failure = failure
            log.error("the job's progress is not followed any more: %s", failure)

    def _look(self) -> None:
        """Write down what was committed since the last look. While Kafka does not answer nothing is known, and nothing is written."""
        from confluent_kafka import KafkaException, TopicPartition

        topic = self._job.input_topic
        try:
            if (now := time.monotonic()) >= self._counted_at + COUNT_S:
                self._count, self._counted_at = self._cluster.partitions(topic), now
            answered = self._consumer.committed([TopicPartition(topic, number) for number in range(self._count)], timeout=ANSWER_S)
        except (KafkaException, TestbedError) as error:
            log.debug("the group's offsets are not known: %s", error)
            return
        committed = {answer.partition: answer.offset for answer in answered if answer.error is None and answer.offset >= 0}
        moved = {partition: offset for partition, offset in committed.items() if offset > self._committed.get(partition, 0)}
        if moved:
            self._write(moved)

    def _write(self, moved: dict[int, int]) -> None:
        before = {partition: self._committed.get(partition, 0) for partition in moved}
        journal = self._job.run.journal
        started = journal.last(DriverStarted)
        start = 1 if started is None else started.start
        if start != self._ready:
            resumes_at = {str(partition): offset for partition, offset in sorted(self._committed.items())}
            journal.append(DriverReady(start=start, resumes_at=resumes_at))
            self._ready = start
        self._committed |= moved
        now = datetime.now(UTC)
        line = {
            "batch": self._batch,
            "start": start,
            "rows": sum(moved.values()) - sum(before.values()),
            "started_at": _stamp(self._since),
            "committed_at": _stamp(now),
            "trigger_ms": round((now - self._since).total_seconds() * 1000),
            "from": {str(partition): offset for partition, offset in sorted(before.items())},
            "until": {str(partition): offset for partition, offset in sorted(self._committed.items())},
        }
        self._batch, self._since = self._batch + 1, now
        append_json_line(self._job.run.progress, line)


def _stamp(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds")
