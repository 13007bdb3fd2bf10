"""Three brokers: one of them is killed, or another leads. The job goes on without it, and no record is lost or doubled that must not be."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamproof.evidence.folder import RunFolder
from streamproof.evidence.journal import KafkaRebuilt
from streamproof.experiment.model import Experiment, FaultSpec
from streamproof.faults import FAULTS
from streamproof.load.spec import Source, Workload
from streamproof.run import runner
from streamproof.testbed import embedded
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.kafka import Cluster
from streamproof.testbed.process import remembered
from streamproof.verdict.anomaly import Anomaly

RECORDS = 6000
pytestmark = pytest.mark.other_brokers
CASES = [
    ("kill_leader", "two_phase_commit"),
    ("kill_transaction_coordinator", "two_phase_commit"),
    ("move_leaders", "two_phase_commit"),
    ("kill_kafka", "two_phase_commit"),
    ("cut_kafka", "two_phase_commit"),
    ("kill_transaction_coordinator", "offset_in_transaction"),
    ("kill_group_coordinator", "offset_in_transaction"),
    ("kill_group_coordinator", "offset_commit"),
    ("kill_leader", "checkpoint"),
    ("kill_leader", "postgres_two_phase_commit"),
]


@pytest.fixture(scope="module")
def three(testbed: Testbed) -> Iterator[Testbed]:
    """The testbed, which the first run gives three brokers; with one again afterwards."""
    yield testbed
    assert embedded.up(brokers=1) == testbed


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "strategy"), CASES)
def test_the_job_goes_on_with_the_brokers_that_are_left(three: Testbed, fault: str, strategy: str) -> None:
    workload, before = Workload(source=Source.SYNTHETIC, records=RECORDS), len(embedded.current().kafka)
    folder = runner.run(
        Experiment(name="brokers", brokers=3, strategy=strategy, workload=workload, faults=[FaultSpec(fault=fault, at=0.3)], seed=9)
    )
    verdict = folder.read_json(folder.verdict)
    assert verdict["outcome"] == "PASSED", verdict["reason"]
    assert all(check["passed"] for injection in verdict["injections"] for check in injection["evidence"])
    assert len(folder.journal.all(KafkaRebuilt)) == (before != 3)
    assert set(embedded.status().values()) == {"up"}
    now = embedded.current()
    assert now.brokers == ["kafka-1", "kafka-2", "kafka-3"]
    assert Cluster(now.direct_kafka).out_of_sync() == []


@pytest.mark.slow
def test_what_kafka_forgets_after_an_unclean_election_is_seen_as_lost(three: Testbed) -> None:
    """They were acknowledged, and the job did all that it could: what it promises does not hold on such a topic."""
    folder = runner.run(
        Experiment(
            name="unclean",
            brokers=3,
            strategy="checkpoint",
            workload=Workload(source=Source.SYNTHETIC, records=2 * RECORDS),
            batch_records=RECORDS // 20,
            faults=[FaultSpec(fault="elect_unclean_leader", at=0.2)],
            seed=9,
        )
    )
    verdict = folder.read_json(folder.verdict)
    assert verdict["outcome"] == "FAILED", verdict["reason"]
    assert verdict["anomalies"][Anomaly.LOST] > 0
    assert all(check["passed"] for injection in verdict["injections"] for check in injection["evidence"])
    assert verdict["anomalies"][Anomaly.PHANTOM] == verdict["anomalies"][Anomaly.CORRUPTED] == 0
    assert Cluster(embedded.current().direct_kafka).out_of_sync() == []


@pytest.mark.slow
def test_a_broker_that_a_dead_runner_left_killed_is_started_from_the_journal(three: Testbed, tmp_path: Path) -> None:
    embedded.up(brokers=3)
    handle = remembered("kafka-2", embedded.folder())
    assert handle is not None
    os.kill(handle.pid, signal.SIGKILL)
    fault, folder = FAULTS["kill_leader"], RunFolder.create(tmp_path / "run")
    for _ in range(2):  # healing may be repeated
        assert [check.passed for check in fault.heal(three, folder, {"role": fault.target})] == [True]
    assert set(embedded.status().values()) == {"up"}
