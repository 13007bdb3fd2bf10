"""Crash windows inside Spark, seen from outside: what lies on disk and in the output tells which step a micro-batch is at.

Built-in sinks have no room for a failpoint, and a stand-in for them would not be what users run. So the window is observed: see
:class:`streamproof.engines.spark.failpoints.Watch`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from streamproof.engines.spark import checkpoints
from streamproof.kafka.asking import asked
from streamproof.kafka.servers import librdkafka

if TYPE_CHECKING:
    from confluent_kafka import Consumer, TopicPartition

REQUEST_S = 5.0
PATIENCE_S = 30.0
PARQUET = b"PAR1"


class OutputBeforeCommit:
    """Batch N runs and has put something into the output, and ``closed_by(N)`` does not exist yet.

    ``size`` measures the output: what it was before the batch began is kept to compare with.
    """

    def __init__(self, checkpoint: Path, size: Callable[[], int], closed_by: Callable[[int], bool]) -> None:
        self._checkpoint, self._size, self._closed = checkpoint, size, closed_by
        self._before: tuple[int, int] | None = None
        self._batch = -1

    def entered(self) -> int | None:
        begun, done = checkpoints.last(self._checkpoint / "offsets"), checkpoints.last(self._checkpoint / "commits")
        following = 0 if done is None else done + 1
        if begun is None or begun < following:
            size = self._size()
            if checkpoints.last(self._checkpoint / "offsets") == begun:  # else a batch began meanwhile, and may have written
                self._before = (following, size)
            return None
        if self._before is None or self._before[0] != begun or self._closed(begun) or self._size() <= self._before[1]:
            return None
        self._batch = begun
        return begun

    def still(self) -> bool:
        return not self._closed(self._batch)


class LoggedBeforeCommit:
    """The sink's own log names batch N, and ``commits/N`` does not exist yet."""

    def __init__(self, checkpoint: Path, logged: Callable[[int], bool]) -> None:
        self._checkpoint, self._logged = checkpoint, logged
        self._batch = -1

    def entered(self) -> int | None:
        begun = checkpoints.last(self._checkpoint / "offsets")
        if begun is None or (self._checkpoint / "commits" / str(begun)).exists() or not self._logged(begun):
            return None
        self._batch = begun
        return begun

    def still(self) -> bool:
        return not (self._checkpoint / "commits" / str(self._batch)).exists()


def topic_size(bootstrap: str, topic: str) -> Callable[[], int]:
    """Measures a topic: the sum of its partitions' end offsets, control records and open transactions included."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({**librdkafka(bootstrap), "group.id": f"{topic}-watch", "log_level": 2})
    partitions = asked(lambda: consumer.list_topics(topic, timeout=REQUEST_S), PATIENCE_S).topics[topic].partitions

    def size() -> int:
        return sum(asked(partial(_end, consumer, TopicPartition(topic, number)), PATIENCE_S) for number in partitions)

    return size


def _end(consumer: Consumer, partition: TopicPartition) -> int:
    """Raises TimeoutError when the partition's leader does not answer."""
    offsets = consumer.get_watermark_offsets(partition, timeout=REQUEST_S, cached=False)
    if offsets is None:
        raise TimeoutError(f"{partition.topic}-{partition.partition}: no answer within {REQUEST_S:.0f} s")
    return int(offsets[1])


def complete_files(folder: Path, named: str = "*.parquet") -> Callable[[], int]:
    """Counts the folder's complete Parquet files: those that end as one does. ``named`` is a pattern of their names."""

    def complete(path: Path) -> bool:
        try:
            with path.open("rb") as file:
                file.seek(-len(PARQUET), 2)
                return file.tell() > len(PARQUET) and file.read() == PARQUET
        except OSError:
            return False

    return lambda: sum(complete(path) for path in folder.glob(named))
