"""``two_phase_commit``: Kafka transactions prepared by the tasks, finished by the driver from a durable decision log. Exactly-once.

The model: each task with records opens one Kafka transaction, produces, and flushes; it is then *prepared* and invisible to
read-committed readers. The driver collects the tasks' messages, writes its decision, and commits them all.

    task    1. begin, produce, flush                        failpoint ``after_prepare``
    driver  2. every transaction is found ongoing           failpoint ``before_decision``
            3. the decision (all ids) is forced to disk     failpoint ``after_decision``
            4. the first transaction is committed           failpoint ``between_commits``
            5. the others are; the decision is marked done  failpoint ``after_commit``
    Spark   6. ``commits/N`` is written

and when a start finds what an earlier one left, before its query starts:

    driver  a. what is open and undecided is aborted               failpoint ``after_abort``
            b. of each decision that is not done, the first        failpoint ``between_recovered``
               transaction is committed, then the others           failpoint ``before_finish``
            c. the decision is marked done

Crash windows:
    before 3: nothing was decided. The next start aborts every open transaction of the query and Spark replays the batch. No trace.
    between 3 and 6: decided. The next start first finishes the decision. Spark replays the batch; its tasks see the decision and write
    nothing, and its commit finds the batch done. Nothing is lost or doubled; between 4 and 5 a reader may see part of the batch.
    at a, b, c: the next start does the same again; aborting and committing once more change nothing.
    A decision carried out later than the transaction's timeout is LOST. It raises TransactionLost, and the job ends, at each start anew;
    only with ``on_lost_decision: go_on`` it is passed over, and journaled (``decision_lost``).

A transactional id is used once: ``query.start.random``. Were it stable, a late or second attempt's initialisation would abort a
prepared transaction. A lost attempt's open transaction is therefore nobody's: it is aborted in the commit of its batch (or at the
next start), or it would hold back read-committed readers until it timed out.

Checked against: Spark 4.1 (``ForeachBatchSink``: after a driver's death batch N is given again, with the same rows; ``DAGScheduler``: a
job's result has one entry a partition, whichever attempt ended first) and ``streamproof.kafka.transactions`` for the broker's side.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamproof.engines.spark import checkpoints
from streamproof.engines.spark.decisions import DECIDING, DecisionLog
from streamproof.engines.spark.failpoints import reach
from streamproof.engines.spark.job import OnLostDecision, SparkJob
from streamproof.engines.spark.strategies.strategy import Strategy, each_batch
from streamproof.evidence.journal import DecisionLost
from streamproof.jobs.failpoint import Failpoint, Site
from streamproof.jobs.profile import Trait
from streamproof.kafka.transactions import Coordinator, Prepared, TransactionLost
from streamproof.verdict.guarantee import Guarantee

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

AFTER_PREPARE = Failpoint(
    "after_prepare", Site.TASK, "the task's transaction is prepared, nobody knows of it: it is aborted, the batch replayed"
)
BEFORE_DECISION = Failpoint("before_decision", Site.DRIVER, "all prepared, nothing decided: all are aborted, the batch replayed")
AFTER_DECISION = Failpoint("after_decision", Site.DRIVER, "decided, nothing visible: the next start commits")
BETWEEN_COMMITS = Failpoint("between_commits", Site.DRIVER, "decided, part of the batch visible: the next start commits the rest")
AFTER_COMMIT = Failpoint("after_commit", Site.DRIVER, "all visible, Spark does not know: the replay finds the decision and writes nothing")
AFTER_ABORT = Failpoint("after_abort", Site.RECOVERY, "what was open and undecided is aborted: the next start carries the decisions out")
BETWEEN_RECOVERED = Failpoint(
    "between_recovered", Site.RECOVERY, "part of a decision is carried out: the next start does so again, to its end"
)
BEFORE_FINISH = Failpoint(
    "before_finish", Site.RECOVERY, "a decision is carried out and not marked as done: carrying it out again changes nothing"
)


class TwoPhaseCommit(Strategy):
    name = "two_phase_commit"
    summary = "Kafka transactions prepared in the executors, finished by the driver from a durable decision log"
    sink = "kafka"
    takes_results = True
    relies_on = frozenset({Trait.KAFKA_TRANSACTIONS})
    open_transaction_step = "after_prepare"
    decided_transaction_step: str | None = "after_decision"
    guarantee = Guarantee.EXACTLY_ONCE
    atomic = True
    ordered = True
    failpoints = (
        AFTER_PREPARE,
        BEFORE_DECISION,
        AFTER_DECISION,
        BETWEEN_COMMITS,
        AFTER_COMMIT,
        AFTER_ABORT,
        BETWEEN_RECOVERED,
        BEFORE_FINISH,
    )
    doubles = (
        ("after_prepare", "after_abort"),
        ("before_decision", "after_abort"),
        ("before_decision", "after_decision"),
        ("after_decision", "after_abort"),
        ("after_decision", "between_recovered"),
        ("after_decision", "before_finish"),
        ("between_commits", "between_recovered"),
        ("after_commit", "between_commits"),
    )

    def recover(self, job: SparkJob) -> dict[str, Any]:
        """Abort what is open and undecided, then commit what was decided. Raises TransactionLost when a decision cannot be carried out."""
        log = decision_log(job)
        with DECIDING, Coordinator(job.kafka) as coordinator:
            unfinished = log.unfinished()
            aborted = coordinator.abort(_undecided(coordinator.ongoing(f"{job.name}."), unfinished))
            reach(job.run, AFTER_ABORT.name, max(unfinished, default=-1))
            for batch, transactions in unfinished.items():
                try:
                    commit(coordinator, job, batch, transactions[:1])
                    reach(job.run, BETWEEN_RECOVERED.name, batch)
                    commit(coordinator, job, batch, transactions[1:])
                except TransactionLost as lost:
                    held = checkpoints.records(job.checkpoint(), batch)
                    raise TransactionLost(f"batch {batch} ({held}): {lost}") from lost
                reach(job.run, BEFORE_FINISH.name, batch)
                log.finish(batch)
        return {"finished_batches": sorted(unfinished), "aborted_transactions": aborted} if unfinished or aborted else {}

    def start(self, frame: DataFrame, job: SparkJob) -> StreamingQuery:
        from streamproof.engines.spark.strategies.two_phase_commit_sink import Deliver

        return each_batch(frame, job, Deliver(job), job.checkpoint())


def _undecided(ongoing: list[Prepared], unfinished: dict[int, list[Prepared]]) -> list[Prepared]:
    decided = {transaction.transactional_id for transactions in unfinished.values() for transaction in transactions}
    return [transaction for transaction in ongoing if transaction.transactional_id not in decided]


def commit(coordinator: Coordinator, job: SparkJob, batch: int, decided: list[Prepared]) -> None:
    """Commit what was decided for ``batch``. One that the broker has aborted is journaled where the job is to go on without it.

    Raises TransactionLost where it is not, and CoordinatorBusy.
    """
    for transaction in decided:
        try:
            coordinator.commit([transaction])
        except TransactionLost as lost:
            if job.on_lost_decision == OnLostDecision.STOP:
                raise
            event = DecisionLost(start=job.start, batch=batch, transaction=transaction.transactional_id, error=str(lost))
            job.run.journal.append(event)


def prefix(job: SparkJob) -> str:
    """What every transactional id of this start of the driver begins with."""
    return f"{job.name}.{job.start}."


def decision_log(job: SparkJob) -> DecisionLog:
    return DecisionLog(job.checkpoint("decisions"))
