"""A transaction that one process prepared is finished by another, on a real broker, behind the proxy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from streamproof.engines.spark.registry import STRATEGIES
from streamproof.engines.spark.strategies.two_phase_commit import decision_log
from streamproof.evidence.folder import RunFolder
from streamproof.kafka.transactions import Coordinator, Prepared, TransactionLost
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.kafka import Cluster
from streamproof.testbed.process import wait_until
from tests.integration.conftest import Prepare
from tests.support.jobs import spark_job

RECORDS = 10


@pytest.fixture
def coordinator(testbed: Testbed) -> Iterator[Coordinator]:
    with Coordinator(testbed.driver_kafka) as found:
        yield found


def visible(testbed: Testbed, topic: str) -> int:
    """How many records a read-committed reader finds up to the last stable offsets."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    options = {"bootstrap.servers": testbed.direct_kafka, "group.id": "count", "isolation.level": "read_committed"}
    consumer = Consumer({**options, "enable.auto.commit": False, "enable.partition.eof": True, "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(2)])
    count, ended = 0, set()
    try:
        while len(ended) < 2:
            message = consumer.poll(10)
            assert message is not None, "no answer within 10 s"
            error = message.error()
            if error is None:
                count += 1
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(message.partition())
    finally:
        consumer.close()
    return count


def settled(cluster: Cluster, topic: str) -> bool:
    """Whether no open transaction holds back the topic."""
    return cluster.end_offsets(topic, committed=True) == cluster.end_offsets(topic)


def test_a_prepared_transaction_is_committed_by_another_process_after_a_sigkill(
    testbed: Testbed, cluster: Cluster, topic: str, prepare: Prepare, coordinator: Coordinator
) -> None:
    name = prepare(topic)
    assert visible(testbed, topic) == 0, "prepared is not visible"
    transactions = coordinator.describe([name])
    assert [found.transactional_id for found in transactions] == [name]
    coordinator.commit(transactions)
    wait_until("the commit's markers", lambda: settled(cluster, topic), 10)
    assert visible(testbed, topic) == RECORDS

    coordinator.commit(transactions)
    assert visible(testbed, topic) == RECORDS, "to commit again changes nothing"
    assert coordinator.abort(transactions) == [], "what is committed cannot be aborted"
    assert visible(testbed, topic) == RECORDS


def test_an_aborted_transaction_is_invisible_and_lost_to_who_would_commit_it(
    testbed: Testbed, cluster: Cluster, topic: str, prepare: Prepare, coordinator: Coordinator
) -> None:
    name = prepare(topic)
    transactions = coordinator.describe([name])
    assert coordinator.abort(transactions) == [name]
    wait_until("the abort's markers", lambda: settled(cluster, topic), 10)
    with pytest.raises(TransactionLost, match=f"{name} is .*, expected Ongoing"):
        coordinator.describe([name])
    with pytest.raises(TransactionLost, match=f"{name} was decided to commit, but the broker answers InvalidTxnState"):
        coordinator.commit(transactions)
    assert visible(testbed, topic) == 0


def test_a_transaction_that_timed_out_is_lost_loudly(
    testbed: Testbed, cluster: Cluster, topic: str, prepare: Prepare, coordinator: Coordinator
) -> None:
    name = prepare(topic, timeout_ms=1500)
    transactions = coordinator.describe([name])
    wait_until("the broker to abort it", lambda: settled(cluster, topic), 30)
    with pytest.raises(TransactionLost, match=name):
        coordinator.describe([name])
    with pytest.raises(TransactionLost, match=name):
        coordinator.commit(transactions)
    assert visible(testbed, topic) == 0


def test_a_transaction_that_never_was_is_lost(coordinator: Coordinator) -> None:
    with pytest.raises(TransactionLost, match=r"never\.was"):
        coordinator.commit([Prepared("never.was", 123, 0)])


def test_a_transaction_that_never_was_is_lost_when_it_is_described(coordinator: Coordinator) -> None:
    with pytest.raises(TransactionLost, match=r"never\.was"):
        coordinator.describe(["never.was"])


def test_a_wrong_epoch_is_refused_and_the_transaction_stays_open(topic: str, prepare: Prepare, coordinator: Coordinator) -> None:
    (found,) = coordinator.describe([prepare(topic)])
    with pytest.raises(TransactionLost):
        coordinator.commit([Prepared(found.transactional_id, found.producer_id, found.epoch + 1)])
    assert coordinator.describe([found.transactional_id]) == [found]
    coordinator.abort([found])


def test_ongoing_finds_open_transactions_of_the_prefix_only(topic: str, prepare: Prepare, coordinator: Coordinator) -> None:
    names = [prepare(topic, name, records=2) for name in ("sweep.1.a", "sweep.1.b", "sweep.10.a")]
    try:
        assert sorted(found.transactional_id for found in coordinator.ongoing("sweep.1.")) == names[:2]
        coordinator.commit(coordinator.describe(names[:1]))
        assert [found.transactional_id for found in coordinator.ongoing("sweep.1.")] == names[1:2]
    finally:
        coordinator.abort(coordinator.ongoing("sweep."))
    assert coordinator.ongoing("sweep.") == []


def test_recovery_commits_what_was_decided_aborts_the_rest_and_may_be_repeated(
    testbed: Testbed, cluster: Cluster, topic: str, prepare: Prepare, coordinator: Coordinator, tmp_path: Path
) -> None:
    folder = RunFolder.create(tmp_path / "run")
    job = spark_job(folder, "two_phase_commit", name="recover", bootstrap=testbed.driver_kafka, output_topic=topic)
    decided, undecided = prepare(topic, "recover.1.a"), prepare(topic, "recover.1.b")
    foreign = prepare(topic, "recovered.1.a", records=1)
    try:
        decision_log(job).decide(4, coordinator.describe([decided]))
        strategy = STRATEGIES["two_phase_commit"]
        assert strategy.recover(job) == {"finished_batches": [4], "aborted_transactions": [undecided]}
        assert strategy.recover(job) == {}
        assert [found.transactional_id for found in coordinator.ongoing("recover")] == [foreign], "of another query nothing is touched"
    finally:
        coordinator.abort(coordinator.ongoing("recover"))
    wait_until("the markers", lambda: settled(cluster, topic), 10)
    assert visible(testbed, topic) == RECORDS


def test_a_decision_that_comes_too_late_names_the_batch_and_its_records(
    testbed: Testbed, topic: str, prepare: Prepare, coordinator: Coordinator, tmp_path: Path
) -> None:
    folder = RunFolder.create(tmp_path / "run")
    job = spark_job(folder, "two_phase_commit", name="late", bootstrap=testbed.driver_kafka, output_topic=topic)
    transactions = coordinator.describe([prepare(topic, "late.1.a")])
    decision_log(job).decide(1, transactions)
    offsets = job.checkpoint() / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "0").write_text('v1\n{}\n{"in":{"0":10,"1":5}}')
    (offsets / "1").write_text('v1\n{}\n{"in":{"0":20,"1":5}}')
    coordinator.abort(transactions)  # as the broker does when the timeout has passed
    with pytest.raises(TransactionLost, match=r"batch 1 \(partition 0: offsets 10 to 19\): transaction late\.1\.a"):
        STRATEGIES["two_phase_commit"].recover(job)
    assert list(decision_log(job).unfinished()) == [1], "what could not be carried out is not marked as done"
