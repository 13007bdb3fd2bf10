"""``postgres_two_phase_commit``: PostgreSQL transactions prepared by the tasks, ended by the driver's decision. Exactly-once.

The model: each task with records opens one transaction, copies them and a row of the ledger, and prepares it: PREPARE TRANSACTION puts it
on disk under a name, the gid, where nobody sees its rows and no crash undoes it. The driver collects the gids, writes its decision into a
table, and commits them all.

    task    1. BEGIN, COPY, ledger row                         failpoint ``before_prepare``
            2. PREPARE TRANSACTION                             failpoint ``after_prepare``
    driver  3. every transaction is found prepared             failpoint ``before_decision``
            4. the decision (all gids) is committed            failpoint ``after_decision``
            5. the first transaction is committed              failpoint ``between_commits``
            6. the others are; the decision is marked done     failpoint ``after_commit``
    Spark   7. ``commits/N`` is written

and when a start finds what an earlier one left, before its query starts:

    driver  a. what is prepared and undecided is rolled back   failpoint ``after_rollback``
            b. of each decision that is not done, the first    failpoint ``between_recovered``
               transaction is committed, then the others       failpoint ``before_finish``
            c. the decision is marked done

Crash windows:
    before 2: the transaction is open and ends with its connection. Spark runs the task again.
    between 2 and 4: prepared, nothing decided. The next start rolls back every prepared transaction of the query that no decision names,
    and Spark replays the batch. A sweep that does not look at the decisions would LOSE.
    between 4 and 7: decided. The next start first carries the decision out. Spark replays the batch; its tasks see the decision and write
    nothing, and its commit finds the batch done. Between 5 and 6 a reader may see part of the batch.
    at a, b, c: the next start does the same again; rolling back and committing once more change nothing.

COMMIT PREPARED of a transaction that was committed before gives the same error (42704) as of one that never was. So each transaction
writes a row with its own gid into the ledger: a decided gid that is neither prepared nor in the ledger raises TransactionLost.

A gid is used once: ``query:start:batch:partition:task attempt:attempt``. The ledger's key has the gid in it, so that a lost attempt's
transaction, still prepared, does not block the retry. It is nobody's then: it is rolled back after the commit of its batch, or at the next
start. Left alone it would hold its locks for ever: PostgreSQL gives prepared transactions no timeout.

Checked against: PostgreSQL 18.4 (``max_prepared_transactions`` must be set; PREPARE TRANSACTION survives SIGKILL of the server) and Spark
4.1 (``ForeachBatchSink``; the function is called again, and prepares anew, for a batch without ``commits/N``).
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from streamproof.engines.spark import checkpoints
from streamproof.engines.spark.decisions import DECIDING
from streamproof.engines.spark.failpoints import reach
from streamproof.engines.spark.job import SparkJob
from streamproof.engines.spark.strategies.strategy import Strategy, each_batch
from streamproof.jobs.failpoint import Failpoint, Site
from streamproof.kafka.transactions import TransactionLost
from streamproof.verdict.guarantee import Guarantee

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

BEFORE_PREPARE = Failpoint(
    "before_prepare", Site.TASK, "the task's transaction is open: it is rolled back with its connection, the task retried"
)
AFTER_PREPARE = Failpoint(
    "after_prepare", Site.TASK, "the task's transaction is prepared, nobody knows of it: it is rolled back, the records written anew"
)
BEFORE_DECISION = Failpoint("before_decision", Site.DRIVER, "all prepared, nothing decided: all are rolled back, the batch replayed")
AFTER_DECISION = Failpoint("after_decision", Site.DRIVER, "decided, nothing visible: the next start commits")
BETWEEN_COMMITS = Failpoint("between_commits", Site.DRIVER, "decided, part of the batch visible: the next start commits the rest")
AFTER_COMMIT = Failpoint("after_commit", Site.DRIVER, "all visible, Spark does not know: the replay finds the decision and writes nothing")

AFTER_ROLLBACK = Failpoint(
    "after_rollback", Site.RECOVERY, "what was prepared and undecided is rolled back: the next start carries the decisions out"
)
BETWEEN_RECOVERED = Failpoint("between_recovered", Site.RECOVERY, "part of a decision is carried out: the next start does so to its end")
BEFORE_FINISH = Failpoint(
    "before_finish", Site.RECOVERY, "a decision is carried out and not marked as done: to carry it out again changes nothing"
)


class PostgresTwoPhaseCommit(Strategy):
    name = "postgres_two_phase_commit"
    summary = "PostgreSQL transactions prepared in the executors, ended by the driver's durable decision"
    sink = "postgres"
    takes_results = True
    guarantee = Guarantee.EXACTLY_ONCE
    atomic = True
    failpoints = (
        BEFORE_PREPARE,
        AFTER_PREPARE,
        BEFORE_DECISION,
        AFTER_DECISION,
        BETWEEN_COMMITS,
        AFTER_COMMIT,
        AFTER_ROLLBACK,
        BETWEEN_RECOVERED,
        BEFORE_FINISH,
    )
    doubles = (
        ("after_prepare", "after_rollback"),
        ("before_decision", "after_rollback"),
        ("before_decision", "after_decision"),
        ("after_decision", "between_recovered"),
        ("after_decision", "before_finish"),
        ("between_commits", "between_recovered"),
        ("after_commit", "between_commits"),
    )

    def recover(self, job: SparkJob) -> dict[str, Any]:
        """Roll back what is prepared and undecided, then commit what was decided. Raises TransactionLost when that cannot be done."""
        from streamproof.sinks.postgres import tables as postgres

        tables = postgres.Tables(job.name)
        with DECIDING, closing(postgres.connect(job.postgres, autocommit=True)) as connection:
            rolled_back = postgres.roll_back_undecided(connection, tables)
            decisions = postgres.unfinished(connection, tables)
            reach(job.run, AFTER_ROLLBACK.name, max(decisions, default=-1))
            for batch, gids in decisions.items():
                try:
                    postgres.carry_out(connection, tables, gids[:1])
                    reach(job.run, BETWEEN_RECOVERED.name, batch)
                    postgres.carry_out(connection, tables, gids[1:])
                except TransactionLost as lost:
                    held = checkpoints.records(job.checkpoint(), batch)
                    raise TransactionLost(f"batch {batch} ({held}): {lost}") from lost
                reach(job.run, BEFORE_FINISH.name, batch)
                postgres.finish(connection, tables, batch)
        return {"finished_batches": sorted(decisions), "rolled_back": rolled_back} if decisions or rolled_back else {}

    def start(self, frame: DataFrame, job: SparkJob) -> StreamingQuery:
        from streamproof.engines.spark.strategies.postgres_two_phase_commit_sink import Deliver

        job.checkpoint().mkdir(parents=True, exist_ok=True)
        return each_batch(frame, job, Deliver(job), job.checkpoint())
