"""``expire_unread``: records of the input expire before the job has read them.

The model: retention that is shorter than the time for which a job is down, or behind. Kafka deletes old records when a topic's time or size
is up, whoever has read them. Up to its end at that moment each partition is emptied (DeleteRecords, which moves the log's first offset as
retention does), while the driver stands still; then the driver is killed. The next start goes on at an offset that is not there any more.

With ``fail_on_data_loss: true`` the query ends, and so does each start after it: nothing is lost without a word. With
``fail_on_data_loss: false`` the gap is passed over -> LOST, whatever the sink is. A job that ended is let go on, once that was seen, by a
start with ``failOnDataLoss=false``, as by somebody who has looked: so the run comes to an end, and names what is gone.

It cannot be healed: what is deleted is gone. The topic belongs to the run and is deleted with it.

Evidence: the broker reads each partition's first offset back as it was asked for, and records that the job had not committed lay before it;
a start ended and its log says so, or the job went on without a word; the job committed what lies behind; as of ``kill_driver``.
Checked against: Kafka 4.1 (DeleteRecords) and Spark 4.1 (``KafkaDataConsumer.get`` in the executors: ``KafkaIllegalStateException``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from streamproof.evidence.made_anew import MadeAnew
from streamproof.faults.fault import EvidenceCheck, RunContext
from streamproof.faults.source.unread import UnreadInput, ends, unread
from streamproof.testbed.kafka import Cluster


class ExpireUnread(UnreadInput):
    name = "expire_unread"
    summary = "Delete the records of the input topic that the job has not read yet, and SIGKILL the driver"

    def ready(self, run: RunContext) -> bool:
        """Half a batch waits to be read, so that it is worth while."""
        return unread(run, ends(run)) >= run.job.batch_records // 2

    def damage(self, run: RunContext, parameters: Any, checkpoint: Path, batch: int) -> dict[str, Any]:
        below, base = ends(run), MadeAnew.of(run.folder).base
        before = {int(number): end - base.get(int(number), 0) for number, end in below.items()}
        Cluster(run.testbed.direct_kafka).delete_records(run.job.input_topic, before)
        return {"below": below, "unread": unread(run, below)}

    def vanished(self, run: RunContext, target: dict[str, Any]) -> list[EvidenceCheck]:
        starts = MadeAnew.of(run.folder).placed(Cluster(run.testbed.direct_kafka).start_offsets(target["topic"]))
        there = all(starts[int(number)] >= below for number, below in target["below"].items())
        return [
            EvidenceCheck("each partition begins behind what was deleted", there, f"first offsets: {starts}"),
            EvidenceCheck("the job had not read all of it", target["unread"] > 0, f"{target['unread']} records"),
        ]
