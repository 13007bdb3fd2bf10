"""``two_phase_commit_java``: the protocol of ``two_phase_commit``, in a Java data source with Kafka's own producer. Exactly-once.

The model: rows do not leave the JVM. Each task with records opens one Kafka transaction with Kafka's own producer, sends, and flushes;
Spark's commit protocol brings id, producer id and epoch to the driver, which decides and commits. The format is ``streamproof-kafka``,
which any PySpark job can use (docs/spark-sink.md).

    task    1. begin, send, flush                           failpoint ``after_prepare``
    driver  2. every transaction is found ongoing           failpoint ``before_decision``
            3. the decision (all ids) is forced to disk     failpoint ``after_decision``
            4. the first transaction is committed           failpoint ``between_commits``
            5. the others are; the decision is marked done  failpoint ``after_commit``
    Spark   6. ``commits/N`` is written

and when a start finds what an earlier one left, before its first write:

    driver  a. what is open and undecided is aborted               failpoint ``after_abort``
            b. of each decision that is not done, the first        failpoint ``between_recovered``
               transaction is committed, then the others           failpoint ``before_finish``
            c. the decision is marked done

Crash windows: those of ``two_phase_commit``. A decision carried out later than the transaction's timeout is LOST; it raises
TransactionLost at each start anew.

A producer is kept from batch to batch, with its transactional id ``query.start.executor.number``. Before its next transaction it takes its
id again (InitProducerId), which raises the epoch: an EndTxn of the last transaction that arrives late is refused, also without KIP-890. It
may do so only once the batch before is committed, or it would abort a prepared transaction; a task of batch N runs only then.
What is aborted is aborted by taking the id over (``Admin.fenceProducers``), so that an attempt which still writes is fenced.

Checked against: Spark 4.1 (``V2Writes``: a new write in each batch, one table in each start; ``MicroBatchWrite``: the tasks' messages, one
a partition), kafka-clients 3.9.1 and a Kafka 4.1 broker. KIP-939 (prepared transactions that do not time out) is not in these clients:
``KafkaProducer`` 4.1 has neither ``prepareTransaction`` nor ``initTransactions(keepPreparedTxn)``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamproof.engines.spark import spark_kafka
from streamproof.engines.spark.job import SparkJob
from streamproof.engines.spark.strategies.two_phase_commit import TwoPhaseCommit, decision_log
from streamproof.jobs.failpoint import Failpoint, Site

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

AFTER_PREPARE = Failpoint(
    "after_prepare", Site.EXECUTOR, "the task's transaction is prepared, nobody knows of it: it is aborted, the batch replayed"
)


class TwoPhaseCommitJava(TwoPhaseCommit):
    name = "two_phase_commit_java"
    summary = "Two-phase commit in the JVM: the data source streamproof-kafka, with Kafka's own producer"
    recovers_in_sink = True
    decided_transaction_step = None  # it always stops at a decision that is lost
    failpoints = (AFTER_PREPARE, *TwoPhaseCommit.failpoints[1:])  # its tasks prepare in the JVM

    def start(self, frame: DataFrame, job: SparkJob) -> StreamingQuery:
        return (
            frame.select("key", "value")
            .writeStream.format("streamproof-kafka")
            .outputMode(job.output_mode)
            .queryName(job.name)
            .options(**spark_kafka.address(job))
            .option("kafka.transaction.timeout.ms", job.transaction_timeout_ms)
            .option("topic", job.output_topic)
            .option("transactionalIdPrefix", job.name)
            .option("decisions", f"file://{decision_log(job).folder}")
            .option("originHeader", "streamproof")
            .option("originStart", str(job.start))
            .option("checkpointLocation", f"file://{job.checkpoint()}")
            .start()
        )
