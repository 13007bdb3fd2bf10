"""The sink of ``two_phase_commit``: what its tasks and its driver do with a batch. The protocol is told in ``two_phase_commit``.

Apart from the strategy so that naming the strategy does not import Spark. It is a ``foreachBatch`` sink and not a Python data source,
which does the same through Spark's commit protocol: a data source's ``commit`` runs in another Python process, which Spark asks twice a
batch (for the writer, for the commit) and which cost 0.4 s a batch of fixed time; here it is the driver's own, and keeps its connections.
What the data source's commit coordinator would give (one message a partition) a Spark job's result gives too: a partition has one result,
from the first attempt that ended; what other attempts prepared is nobody's and is aborted.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from streamproof.engines.spark import state
from streamproof.engines.spark.decisions import DECIDING
from streamproof.engines.spark.failpoints import reach
from streamproof.engines.spark.job import SparkJob
from streamproof.engines.spark.producers import REQUEST_S, Stock, connected, take_id
from streamproof.engines.spark.strategies.two_phase_commit import (
    AFTER_COMMIT,
    AFTER_DECISION,
    AFTER_PREPARE,
    BEFORE_DECISION,
    BETWEEN_COMMITS,
    commit,
    decision_log,
    prefix,
)
from streamproof.kafka.librdkafka import TransactionalProducer
from streamproof.kafka.transactions import Coordinator, Prepared

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PREPARED = "transactional_id string"


class Prepare:
    """A task's part: prepare one transaction with the partition's records. A function for ``mapInArrow``; yields the transaction's id."""

    def __init__(self, job: SparkJob, batch: int) -> None:
        self.job, self.batch = job, batch

    def __call__(self, records: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        attempt = context.attemptNumber()
        headers = [("streamproof", f"{self.job.start}.{self.batch}.{attempt}".encode())]
        producer: TransactionalProducer | None = None
        for some in records:
            if some.num_rows:
                if producer is None:
                    producer = _stock(self.job).take()
                    producer.begin()
                producer.produce(self.job.output_topic, some.column("key"), some.column("value"), headers, REQUEST_S)
        if producer is None:
            return
        producer.flush(REQUEST_S)  # everything on the broker, or it raises: after this only EndTxn is missing
        _stock(self.job).put_away(producer)
        reach(self.job.run, AFTER_PREPARE.name, self.batch, attempt=attempt, partition=context.partitionId())
        yield pa.RecordBatch.from_arrays([pa.array([producer.name])], names=["transactional_id"])


class Deliver:
    """The driver's part, a function for ``foreachBatch``: let every task prepare, decide, then carry the decision out."""

    def __init__(self, job: SparkJob) -> None:
        self._job, self._log = job, decision_log(job)
        self._coordinator: Coordinator | None = None

    def __call__(self, frame: DataFrame, batch: int) -> None:
        try:
            self._deliver(frame, batch)
        except BaseException:  # whatever it was: connections may be broken, what is undecided must not stay open, the query learns of it
            self._forget()
            self._abort(batch)
            raise

    def _deliver(self, frame: DataFrame, batch: int) -> None:
        decided = self._log.read(batch)
        if decided is not None:
            state.renew(frame, self._job)
            with DECIDING:
                self._carry_out(decided, batch)
            return
        rows = frame.select("key", "value").mapInArrow(Prepare(self._job, batch), PREPARED).collect()
        with DECIDING:
            prepared = self._connected().describe(row.transactional_id for row in rows)
            reach(self._job.run, BEFORE_DECISION.name, batch)
            self._log.decide(batch, prepared)
            reach(self._job.run, AFTER_DECISION.name, batch)
            self._carry_out(prepared, batch)

    def _carry_out(self, decided: list[Prepared], batch: int) -> None:
        run, coordinator = self._job.run, self._connected()
        commit(coordinator, self._job, batch, decided[:1])
        reach(run, BETWEEN_COMMITS.name, batch)
        commit(coordinator, self._job, batch, decided[1:])
        self._log.finish(batch)
        reach(run, AFTER_COMMIT.name, batch)
        # The next batch has not begun: what is still open belongs to attempts that were lost (to a fault, or to speculation).
        coordinator.abort(coordinator.ongoing(prefix(self._job)))

    def _abort(self, batch: int) -> None:
        """What was decided stays decided; everything else of the batch is aborted."""
        with DECIDING:
            if self._log.read(batch) is None:
                with Coordinator(self._job.kafka) as coordinator:
                    coordinator.abort(coordinator.ongoing(prefix(self._job)))

    def _connected(self) -> Coordinator:
        if self._coordinator is None:
            self._coordinator = Coordinator(self._job.kafka)
        return self._coordinator

    def _forget(self) -> None:
        if self._coordinator is not None:
            self._coordinator.__exit__(None, None, None)
            self._coordinator = None


# By what every id of a driver's start begins with: a Python worker outlives the tasks of one start.
_stocks: dict[str, Stock] = {}


def _stock(job: SparkJob) -> Stock:
    begin = prefix(job)
    if begin not in _stocks:
        _stocks[begin] = Stock(lambda: take_id(connected(job, f"{begin}{uuid.uuid4().hex}")))
    return _stocks[begin]
