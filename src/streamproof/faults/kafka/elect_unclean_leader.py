"""``elect_unclean_leader``: a broker that lacks the last records of an output partition is made its leader. What it lacks is gone.

The model: a topic that is content with one replica in sync (``min.insync.replicas`` 1), a follower that fell behind, a leader that dies,
and somebody (or ``unclean.leader.election.enable``) that prefers a partition with a gap to one that is away. Kafka had acknowledged those
records; the job cannot know that they are gone, and what it promises does not hold on such a topic: the run FAILS with LOST, as it must. An
oracle that believes in acknowledgements would let it pass.

The partition is kept on two brokers; the follower is stopped (SIGSTOP) until it is out of sync and the job has committed more; then the
leader is killed, the follower woken and elected.

Evidence: the follower was out of sync while the job committed, the leader's process is gone, the follower reads back as the leader, and
under it the partition ends earlier than it did; and the job committed a micro-batch afterwards. Healing starts the dead broker again and
waits until it has caught up, which is to say: has forgotten the same.
Checked against: Kafka 4.1 in KRaft mode (ElectLeaders of type UNCLEAN; a fenced broker leaves the in-sync set). Jobs with transactions are
refused: the end of a transaction may be among what is lost, and then nobody can read on.
"""

from __future__ import annotations

import contextlib
import signal
from typing import Any

from streamproof.evidence.folder import RunFolder
from streamproof.faults.fault import EvidenceCheck, FaultError, Parameters, RunContext
from streamproof.faults.kafka.forgotten import Forgotten
from streamproof.faults.kafka.killed_broker import EVIDENCE_S, caught_up
from streamproof.faults.outage import gone, server_process, signalled
from streamproof.testbed import hosts
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.kafka import Cluster
from streamproof.testbed.process import TestbedError, signal_recorded

STEP_S = 60.0
BATCHES = 2


class ElectUncleanLeader(Forgotten):
    name = "elect_unclean_leader"
    summary = "Have a broker lead an output partition whose last records it lacks"
    target = "a partition of the output"
    least_brokers = 3

    def batches(self, parameters: Parameters) -> int:
        return BATCHES + 2

    def aim(self, run: RunContext, parameters: Parameters) -> dict[str, Any]:
        topic, leaders = run.job.output_topic, Cluster(run.testbed.direct_kafka).leaders(run.job.output_topic)
        partition = run.rng.choice(sorted(leaders))
        leader = leaders[partition]
        follower = run.rng.choice([number for number in range(1, len(run.testbed.brokers) + 1) if number != leader])
        servers = {name: server_process(run.testbed.brokers[number - 1]) for name, number in (("leader", leader), ("follower", follower))}
        return {"role": self.target, "topic": topic, "partition": partition, "brokers": [leader, follower], **servers}

    def inject(self, run: RunContext, parameters: Parameters, target: dict[str, Any]) -> None:
        cluster, topic, partition = Cluster(run.testbed.direct_kafka), target["topic"], target["partition"]
        leader, follower = target["brokers"]
        cluster.configure(topic, min_insync_replicas="1")
        cluster.keep_on(topic, partition, [leader, follower])
        run.wait_for("two replicas", lambda: cluster.in_sync(topic, partition) == sorted([leader, follower]), STEP_S)
        signalled(target["follower"], signal.SIGSTOP)
        run.wait_for("the follower to be out of sync", lambda: _in_sync(run.testbed, target) == [leader], STEP_S)
        cluster, before = _without(run.testbed, follower), run.progress.batches()
        run.wait_for("micro-batches without the follower", lambda: run.progress.batches() >= before + BATCHES, EVIDENCE_S)
        target["end"] = cluster.end_offsets(topic)[partition]
        if cluster.leaders(topic)[partition] != leader:
            raise FaultError(f"{topic}-{partition} is not led by broker {leader} any more")
        signalled(target["leader"], signal.SIGKILL)
        signal_recorded([target["follower"]], signal.SIGCONT)

    def evidence(self, run: RunContext, parameters: Parameters, target: dict[str, Any]) -> list[EvidenceCheck]:
        topic, partition = target["topic"], target["partition"]
        leader, follower = target["brokers"]
        cluster = _without(run.testbed, leader)

        def elected() -> bool:
            with contextlib.suppress(TestbedError):  # a client may still ask the broker that is gone
                if cluster.leaders(topic)[partition] == follower:
                    return True
                cluster.elect_unclean(topic, partition)
            return False

        ended = gone(run, target["leader"])
        led = run.eventually(elected, STEP_S)
        end = cluster.end_offsets(topic)[partition] if led else None
        before = run.progress.batches()
        on = run.eventually(lambda: run.progress.batches() > before, EVIDENCE_S)
        return [
            ended,
            EvidenceCheck(f"broker {follower}, which was out of sync, leads {topic}-{partition}", led, f"it was broker {leader}"),
            EvidenceCheck("what it lacks is gone", end is not None and end < target["end"], f"the end was {target['end']}, it is {end}"),
            EvidenceCheck("the job committed a batch afterwards", on, f"{run.progress.batches() - before}"),
        ]

    def heal(self, testbed: Testbed, folder: RunFolder, target: dict[str, Any]) -> list[EvidenceCheck]:
        signal_recorded([target["follower"]], signal.SIGCONT)
        return [caught_up()]


def _without(testbed: Testbed, broker: int) -> Cluster:
    """Kafka, found by way of the other brokers."""
    return Cluster(
        ",".join(
            f"{hosts.of(role)}:{ports.direct}"
            for number, (role, ports) in enumerate(zip(testbed.brokers, testbed.kafka, strict=True), 1)
            if number != broker
        )
    )


def _in_sync(testbed: Testbed, target: dict[str, Any]) -> list[int]:
    """Who is in sync; nobody while a client that is new still asks the broker that does not answer."""
    try:
        return _without(testbed, target["brokers"][1]).in_sync(target["topic"], target["partition"])
    except TestbedError:
        return []
