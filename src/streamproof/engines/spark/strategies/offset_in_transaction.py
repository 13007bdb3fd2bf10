"""``offset_in_transaction``: a task's output and its consumed offset in one Kafka transaction. Exactly-once, each partition for itself.

The model: one transaction per source partition and batch, under a transactional id that names the partition. The consumer group's offset
is committed *in* the transaction, so output and progress become visible together or not at all. Spark may replay what it likes: a task
first reads the committed offset and drops every record below it.

    task    1. a new producer takes the id: a new epoch, which fences earlier
               producers and late requests, and ends what these left open
            2. the committed offset is read; records below it are dropped    failpoint ``after_fence``
            3. the others are produced and flushed                           failpoint ``after_produce``
            4. the end offset is added to the transaction                    failpoint ``after_offsets``
            5. the transaction is committed                                  failpoint ``after_commit``
    driver  6. every task has ended                                          failpoint ``after_tasks``
    Spark   7. ``commits/N`` is written

    and before a query starts: what an earlier start left open is aborted    failpoint ``after_abort``

Crash windows:
    before 5: the transaction is open; the next attempt's initialisation aborts it. No trace.
    after 5: output and offset are visible; the replay reads the offset and drops every record.
    Batches are not atomic: some partitions of a batch may be visible before others, for as long as a replay takes.

What breaks it:
    The group's offset is lost or changed (it expires, somebody deletes it, its group or resets it), and then Spark replays a batch. With
    no offset, or a lower one, the batch is written again -> DUPLICATED. With a higher one, records below it are dropped -> LOST.
    The brokers lose what they acknowledged (an unclean election): records -> LOST, the group's offset -> DUPLICATED.

What does not:
    A transaction that times out: the broker aborts it and raises the epoch. The task's commit is refused, its next attempt writes again.
    A request of an earlier transaction that arrives late: its epoch is an earlier one, the broker refuses it. An InitProducerId names no
    epoch: a late one aborts the open transaction. Its task fails, and the next attempt writes again.

An idle partition opens no transaction. A producer is used for one transaction. librdkafka would keep the epoch for the next one, and an
EndTxn of the first that arrives late would commit the second where it stands: records without their offset, which the next attempt writes
again. The next producer is connected in the background; the task itself takes the id. Should another take it meanwhile, the transaction of
the older producer fails, and its task with it: no two can commit.

Checked against: Kafka's transaction coordinator (InitProducerId bumps the epoch and aborts an ongoing transaction; EndTxn of an earlier
epoch is answered with error 47; TxnOffsetCommit becomes visible with the commit marker), librdkafka 2.16 (no KIP-890; it initialises a
producer once) and Spark 4.1 (one task per topic partition as long as ``minPartitions`` is not set and nothing shuffles).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamproof.engines.spark.failpoints import reach
from streamproof.engines.spark.job import SparkJob
from streamproof.engines.spark.strategies.strategy import Strategy, each_batch
from streamproof.jobs.failpoint import Failpoint, Site
from streamproof.jobs.profile import Trait
from streamproof.kafka.transactions import Coordinator
from streamproof.verdict.guarantee import Guarantee

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

AFTER_FENCE = Failpoint("after_fence", Site.TASK, "nothing was written: the next attempt does everything")
AFTER_PRODUCE = Failpoint(
    "after_produce", Site.TASK, "the records are in an open transaction: the next attempt aborts it and writes them again"
)
AFTER_OFFSETS = Failpoint("after_offsets", Site.TASK, "records and offset are in an open transaction: the next attempt aborts it")
AFTER_COMMIT = Failpoint(
    "after_commit", Site.TASK, "records and offset are visible, Spark does not know: the next attempt drops every record"
)
AFTER_TASKS = Failpoint("after_tasks", Site.DRIVER, "all is visible, Spark has not committed the batch: the replay drops every record")

AFTER_ABORT = Failpoint("after_abort", Site.RECOVERY, "what was open is aborted, nothing else has happened: the next start does the same")


class OffsetInTransaction(Strategy):
    name = "offset_in_transaction"
    summary = "one Kafka transaction per source partition holds the output and the consumed offset"
    sink = "kafka"
    relies_on = frozenset({Trait.GROUP_OFFSETS, Trait.KAFKA_TRANSACTIONS})
    open_transaction_step = "after_offsets"
    guarantee = Guarantee.EXACTLY_ONCE
    ordered = True
    failpoints = (AFTER_FENCE, AFTER_PRODUCE, AFTER_OFFSETS, AFTER_COMMIT, AFTER_TASKS, AFTER_ABORT)
    doubles = (
        ("after_produce", "after_abort"),
        ("after_offsets", "after_abort"),
        ("after_offsets", "after_commit"),
        ("after_commit", "after_abort"),
        ("after_tasks", "after_offsets"),
    )

    def recover(self, job: SparkJob) -> dict[str, Any]:
        """Abort what is open: a partition without new records would keep it open, and hold readers back, until it timed out."""
        with Coordinator(job.kafka) as coordinator:
            aborted = coordinator.abort(coordinator.ongoing(f"{job.name}."))
        reach(job.run, AFTER_ABORT.name, -1)
        return {"aborted_transactions": aborted} if aborted else {}

    def start(self, frame: DataFrame, job: SparkJob) -> StreamingQuery:
        from streamproof.engines.spark.strategies.offset_in_transaction_sink import deliver

        return each_batch(frame, job, deliver(job), job.checkpoint())
