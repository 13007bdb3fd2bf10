"""An EndTxn of one transaction arrives late, while the partition's next one is open: ``offset_in_transaction`` delivers exactly once.

librdkafka sends EndTxn again over a new connection when the old one is cut. The first one may still arrive. Here it is sent by hand, with
the producer id and the epoch of the transaction before, at each step of the next one. A broker that accepts it makes visible what is open.
"""

from __future__ import annotations

import contextlib
import functools
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from streamproof.engines.spark.job import SparkJob
from streamproof.engines.spark.strategies import offset_in_transaction_sink as sink
from streamproof.evidence.folder import RunFolder
from streamproof.kafka.transactions import Coordinator, Prepared, TransactionLost
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.kafka import Cluster
from streamproof.testbed.process import wait_until
from tests.support.checkout import ROOT
from tests.support.delivered import delivered
from tests.support.jobs import spark_job

WAIT_S = 20.0
RECORDS = 10
STEPS = ("after_fence", "after_produce", "after_offsets", "after_commit")
INVALID_PRODUCER_EPOCH = 47
REPRODUCTION = "docs/upstream/librdkafka_late_endtxn.py"


class Died(Exception):
    """The task's end at a step."""


def rows(first: int) -> pa.RecordBatch:
    """What a task of partition 0 is given: the source's records from this offset on."""
    offsets = list(range(first, first + RECORDS))
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array([b"k"] * RECORDS, pa.binary()),
            "value": pa.array([b"%d" % offset for offset in offsets], pa.binary()),
            "source_partition": pa.array([0] * RECORDS, pa.int32()),
            "source_offset": pa.array(offsets, pa.int64()),
        }
    )


@pytest.fixture
def job(testbed: Testbed, cluster: Cluster, topic: str, tmp_path: Path) -> Iterator[SparkJob]:
    """A job of one partition that nothing runs: its tasks are the tests' own calls."""
    source, query = f"{topic}-source", f"late-{uuid.uuid4().hex[:8]}"
    cluster.create_topics({source: 1})
    made = spark_job(
        RunFolder.create(tmp_path / "run"),
        "offset_in_transaction",
        name=query,
        bootstrap=testbed.driver_kafka,
        input_topic=source,
        output_topic=topic,
        transaction_timeout_ms=60_000,
        start=1,
    )

    def knows_groups() -> bool:
        with contextlib.suppress(KafkaException):  # a new broker makes its topic of group offsets now
            return committed(testbed, made) < 0
        return False

    wait_until("the group's coordinator", knows_groups, WAIT_S)
    yield made
    for name in [name for name in sink._stocks if name.startswith(query)]:
        sink._stocks.pop(name).close()
    cluster.delete_topics([source])


@pytest.fixture
def task(job: SparkJob, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Run the sink's task for a batch, as Spark does; ``at`` is called at each of its steps."""

    def run(batch: int, first: int, at: Callable[[str], None], attempt: int = 0) -> None:
        context = SimpleNamespace(attemptNumber=lambda: attempt, partitionId=lambda: 0)
        monkeypatch.setattr("pyspark.TaskContext.get", lambda: context)
        monkeypatch.setattr(sink, "reach", lambda _folder, step, _batch, **_where: at(step))
        assert list(sink.Commit(job, batch)([rows(first)])) == []

    return run


def values(testbed: Testbed, topic: str) -> list[int]:
    return sorted(int(message.value()) for message in delivered(testbed, topic))


def committed(testbed: Testbed, job: SparkJob) -> int:
    """The group's offset as it is visible now, whatever is open."""
    options = {"bootstrap.servers": testbed.direct_kafka, "group.id": job.name, "isolation.level": "read_uncommitted"}
    consumer: Consumer = Consumer(options)
    try:
        return int(consumer.committed([TopicPartition(job.input_topic, 0)], timeout=WAIT_S)[0].offset)
    finally:
        consumer.close()


@pytest.mark.parametrize("dies", [False, True], ids=["and the task goes on", "and the task dies"])
@pytest.mark.parametrize("step", STEPS)
def test_a_late_end_of_the_transaction_before_is_refused_at_each_step(
    testbed: Testbed, cluster: Cluster, job: SparkJob, task: Callable[..., None], step: str, dies: bool
) -> None:
    name, known, seen = f"{job.name}.p0", list[Prepared](), list[Any]()

    def settled() -> bool:
        return cluster.end_offsets(job.output_topic, committed=True) == cluster.end_offsets(job.output_topic)

    with Coordinator(testbed.driver_kafka) as coordinator:

        def remember(at: str) -> None:
            if at == "after_offsets":
                known.extend(coordinator.describe([name]))

        def late(at: str) -> None:
            if at != step:
                return
            try:
                coordinator.commit(known)
                seen.append("accepted")
                wait_until("the markers", settled, WAIT_S)
            except TransactionLost as lost:
                seen.append("refused" if f"InvalidProducerEpoch ({INVALID_PRODUCER_EPOCH})" in str(lost) else str(lost))
            if step == "after_commit":
                wait_until("the markers", settled, WAIT_S)
                wait_until("the group's offset", lambda: committed(testbed, job) == 2 * RECORDS, WAIT_S)
            seen.extend([len(values(testbed, job.output_topic)), committed(testbed, job)])
            if dies:
                raise Died

        task(0, 0, remember)
        wait_until("the markers", settled, WAIT_S)
        if dies:
            with pytest.raises(Died):
                task(1, RECORDS, late)
        else:
            task(1, RECORDS, late)
        task(1, RECORDS, lambda _: None, attempt=1)  # the batch once more: as a retry, or after a restart

    wait_until("the markers", settled, WAIT_S)
    assert (values(testbed, job.output_topic), committed(testbed, job)) == (list(range(2 * RECORDS)), 2 * RECORDS)
    until = 2 * RECORDS if step == "after_commit" else RECORDS
    assert seen == ["refused", until, until]


def test_late_offsets_of_the_transaction_before_are_refused(testbed: Testbed, job: SparkJob, task: Callable[..., None]) -> None:
    """A broker that accepts them puts the group's offset back: the offset of the transaction that is open is overwritten."""
    name, known, errors = f"{job.name}.p0", list[Prepared](), list[int]()
    with Coordinator(testbed.driver_kafka) as coordinator:

        def remember(at: str) -> None:
            if at == "after_offsets":
                known.extend(coordinator.describe([name]))

        def late(at: str) -> None:
            if at == "after_offsets":
                errors.append(send_offset(coordinator, job, known[0], RECORDS))

        task(0, 0, remember)
        task(1, RECORDS, late)
    assert errors == [INVALID_PRODUCER_EPOCH]
    wait_until("the group's offset", lambda: committed(testbed, job) == 2 * RECORDS, WAIT_S)


def send_offset(coordinator: Coordinator, job: SparkJob, transaction: Prepared, offset: int) -> int:
    """Send a TxnOffsetCommit by hand; its error code. The one broker of the testbed coordinates the group too."""
    from kafka.protocol.producer.transaction import TxnOffsetCommitRequest as Request

    topic, partition = Request.TxnOffsetCommitRequestTopic, Request.TxnOffsetCommitRequestTopic.TxnOffsetCommitRequestPartition
    request = Request(
        transactional_id=transaction.transactional_id,
        group_id=job.name,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        topics=[topic(name=job.input_topic, partitions=[partition(partition_index=0, committed_offset=offset, committed_leader_epoch=-1)])],
        max_version=2,
    )
    answer = coordinator._admin._manager.run(coordinator._send, request, transaction.transactional_id)
    return int(answer.topics[0].partitions[0].error_code)


def test_each_transaction_of_a_partition_has_an_epoch_of_its_own(testbed: Testbed, job: SparkJob, task: Callable[..., None]) -> None:
    held: list[tuple[str, int, int]] = []
    with Coordinator(testbed.driver_kafka) as coordinator:

        def note(at: str) -> None:
            if at == "after_produce":
                held.extend((found.transactional_id, found.producer_id, found.epoch) for found in coordinator.describe([f"{job.name}.p0"]))

        for batch in range(4):
            task(batch, batch * RECORDS, note)
    first = held[0]
    assert held == [(first[0], first[1], first[2] + number) for number in range(4)]


@functools.cache
def reproduced(bootstrap: str) -> tuple[int, str]:
    command = [sys.executable, REPRODUCTION, "--bootstrap", bootstrap]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout


def test_the_reproduction_for_librdkafka_finds_the_defect_and_the_way_round_it(testbed: Testbed) -> None:
    """When this fails after an update of librdkafka: the reproduction and docs/claims.md say what no longer is."""
    code, printed = reproduced(testbed.driver_kafka)
    same, anew = printed.split("\n\n")[1:3]
    assert "late: error 0\n" in same, printed
    assert "T2 is CompleteCommit 10 of its 10 records are visible, its application has not committed" in same, printed
    assert "  10 of the 10 records of T2 are visible, 0 expected" in same, printed
    assert "late: error 47\n" in anew, printed
    assert "  0 of the 10 records of T2 are visible, 0 expected" in anew, printed
    assert code == 1


def test_the_report_for_librdkafka_shows_what_the_reproduction_prints(testbed: Testbed) -> None:
    report = (ROOT / REPRODUCTION).with_name("librdkafka-late-endtxn.md").read_text()
    _, printed = reproduced(testbed.driver_kafka)
    known = printed.split("producer id ")[1].split(",")[0], printed.split("producer id ")[-1].split(",")[0]
    for found, shown in zip(known, ("0", "1"), strict=True):
        printed = printed.replace(f"producer id {found},", f"producer id {shown},")
    assert printed in report
