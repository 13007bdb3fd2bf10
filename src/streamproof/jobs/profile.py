"""What is known of a job before it runs: what faults, schedules and judges ask of it, whichever engine runs it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from streamproof.evidence.locations import ENVELOPE, Location
from streamproof.jobs.failpoint import Failpoint
from streamproof.verdict.guarantee import Guarantee, Promise


class Role(StrEnum):
    """The parts that processes of a job play.

    DRIVER is the process that leads the job, with all that it started itself: each job has one, and the run's supervisor starts it again
    when it dies. EXECUTORS do the job's work elsewhere, and PYTHON_WORKERS are the processes in which they run Python. Of a job that its
    driver runs as several processes, WORKERS do the work and the COORDINATOR, if there is one, leads them: each of them is started again
    alone.
    """

    DRIVER = "driver"
    EXECUTORS = "executors"
    PYTHON_WORKERS = "Python workers"
    COORDINATOR = "coordinator"
    WORKERS = "workers"


class Trait(StrEnum):
    """What a job's commit protocol relies on, as far as a fault can break it.

    CHECKPOINT: it keeps what it needs for going on in the run's checkpoint folder. RESUMES_FROM_CHECKPOINT: a start goes on where Spark's
    checkpoint says, and asks nothing else. GROUP_OFFSETS: its progress is a consumer group's committed offsets.
    KAFKA_TRANSACTIONS: it writes in Kafka transactions whose ids begin with the job's name. SKIPS_COMPLETE_OUTPUT: a batch that runs again
    after its output was complete does not write it again, whatever its guarantee. KNOWS_THE_QUERY: it remembers batches by the id that the
    checkpoint gives the query. DELTA_TABLE, ICEBERG_TABLE: it writes to a table of that format. STATE_STORE: it keeps state from batch to
    batch, in Spark's state store. SAVEPOINTS: it can be stopped with a savepoint of Flink. RESET_TOOL: Kafka's own tool can have it begin
    anew. STANDBY: a second coordinator stands by.
    """

    CHECKPOINT = "checkpoint"
    RESUMES_FROM_CHECKPOINT = "checkpoint that it goes on from"
    GROUP_OFFSETS = "committed offsets of a consumer group"
    KAFKA_TRANSACTIONS = "Kafka transactions"
    SKIPS_COMPLETE_OUTPUT = "memory of its complete output"
    KNOWS_THE_QUERY = "memory of its query's id"
    DELTA_TABLE = "Delta table"
    ICEBERG_TABLE = "Iceberg table"
    STATE_STORE = "state store"
    SAVEPOINTS = "savepoints"
    RESET_TOOL = "tool that resets it"
    STANDBY = "coordinator that stands by"


if TYPE_CHECKING:  # what a task imports needs no validation
    from streamproof.jobs.expected import ExpectedCounts
    from streamproof.jobs.results import Results

KAFKA, POSTGRES = "kafka", "postgres"


@dataclass(frozen=True)
class JobProfile:
    """A job as others see it. ``name`` is what messages call it; ``links`` are the servers that it needs; ``traits`` what it relies on.

    ``failpoints`` are the steps of its commit protocol at which it can be crashed or held, and ``second_crashes`` pairs of them: a crash at
    the second while the job recovers from a crash at the first. ``open_transaction_step`` is the step at which a transaction is open and
    undecided, ``decided_transaction_step`` the one at which it is decided and not yet committed; None where there is no such step.
    ``location`` is where its output keeps the identity of a record, ``reads`` where its input does. ``not_judged`` names what cannot be
    judged of such a job. ``expected`` says how often it delivers each record; None: once. ``results`` says what it delivers instead of
    records.
    ``knows_offsets`` says whether the offsets that it commits can be read; else how far it has come is known from its output alone.
    ``of_a_user`` says that the job is a user's own, of which nothing is known but what its description says.
    ``executors_link`` says whether its executors reach Kafka by another proxy than its driver.
    """

    name: str
    engine: str
    sink: str
    guarantee: Guarantee
    promises: frozenset[Promise] = frozenset()
    roles: frozenset[Role] = frozenset({Role.DRIVER})
    links: frozenset[str] = frozenset({KAFKA})
    traits: frozenset[Trait] = frozenset()
    failpoints: tuple[Failpoint, ...] = ()
    second_crashes: tuple[tuple[str, str], ...] = ()
    open_transaction_step: str | None = None
    decided_transaction_step: str | None = None
    location: Location = ENVELOPE
    reads: Location = ENVELOPE
    not_judged: tuple[str, ...] = ()
    expected: ExpectedCounts | None = None
    results: Results | None = None
    knows_offsets: bool = True
    of_a_user: bool = False
    executors_link: bool = True

    def failpoint(self, step: str) -> Failpoint:
        """The step of that name. Raises KeyError when there is no such step."""
        return {point.name: point for point in self.failpoints}[step]
