"""``recreate_input``: the input topic is deleted and made again, under the same name, while the job is down.

The model: a clean-up that takes the wrong topic, an infrastructure-as-code tool that replaces what it was to change, a test environment
that is set up anew around a job that keeps its checkpoint. The new topic counts from 0; the checkpoint names offsets of the old one, and
nothing in it says of which topic they are. Whatever the new topic holds below them is taken for read.

While the new topic is shorter than the checkpoint's offsets the source sees that: the query ends, or with ``fail_on_data_loss: false`` it
goes on at the topic's end as it is then -> what lay before is LOST. Once it has grown beyond them (``grown``) nobody can see it, and the
query goes on in the middle of the new topic -> LOST, with ``fail_on_data_loss: true`` too. A job that ended is let go on as by
``expire_unread``.

The generator is told to send nothing more and has sent what it began, so that it is known which topic each record went to; the driver
stands still (SIGSTOP) with nothing planned behind the last commit; the topic is deleted and made; the driver is killed. It is started again
once the new topic holds something, with ``grown`` once it holds more than the checkpoint's offsets.

In the evidence the records of the new topic have their places behind those of the old one (``made_anew.json``).

It cannot be healed: what is deleted is gone. The topic belongs to the run and is deleted with it.

Evidence: the topic reads back with another id, and began again at 0; how far it reached as the job was started; a start ended and its log
says so, or the job went on without a word; the job committed what lies behind; as of ``kill_driver``.
Checked against: Kafka 4.1, Spark 4.1 (``KafkaMicroBatchStream.latestOffset``, ``KafkaOffsetReaderAdmin``: ``PARTITION_OFFSET_CHANGED``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field

from streamproof.engines.spark import checkpoints
from streamproof.evidence.folder import read_json_lines
from streamproof.evidence.made_anew import MadeAnew
from streamproof.faults.fault import EvidenceCheck, FaultError, Parameters, RunContext
from streamproof.faults.source.unread import UnreadInput, ends, unread
from streamproof.jobs import down
from streamproof.load.gate import HOLD, Gate, Orders
from streamproof.testbed.kafka import Cluster

QUIET_S, GONE_S, GROW_S, SETTLED_S = 60.0, 30.0, 60.0, 0.5


class RecreateInputParameters(Parameters):
    grown: bool = Field(
        False, description="Start the job again only when the new topic holds more than the checkpoint's offsets: nobody can see it then"
    )


class RecreateInput(UnreadInput):
    name = "recreate_input"
    summary = "Delete the input topic and make it again while the driver is down"
    parameters_model: type[Parameters] = RecreateInputParameters

    def batches(self, parameters: Any) -> int:
        return 8 if parameters.grown else 4

    def noticed(self, target: dict[str, Any]) -> bool:
        return not target["grown"]

    def inject(self, run: RunContext, parameters: Any, target: dict[str, Any]) -> None:
        if MadeAnew.of(run.folder).base:
            raise FaultError("the input topic was made anew before in this run: the evidence can tell two topics apart, not three")
        Orders(run.folder).give(HOLD, 1)

        def quiet() -> bool:
            intended = sum(int(intent["count"]) for intent in read_json_lines(run.folder.intents))
            return intended == sum(ends(run).values())

        for _ in range(2):  # a chunk that was let through just before is seen the second time
            run.wait_for("all records that were to be sent to be in the topic", quiet, QUIET_S)
            run.let_pass(SETTLED_S)
        super().inject(run, parameters, target)
        cluster, topic = Cluster(run.testbed.direct_kafka), target["topic"]
        more = run.job.batch_records + (2 * sum(target["committed"].values()) + run.job.batch_records if parameters.grown else 0)
        target["gate_opened"] = min(run.records, sum(target["below"].values()) + more)
        Gate(run.folder).open_to(target["gate_opened"])  # it follows a job that is down now
        Orders(run.folder).withdraw(HOLD)
        wanted = target["committed"] if parameters.grown else dict.fromkeys(target["committed"], 0)

        def reached() -> bool:
            now = cluster.end_offsets(topic)
            target["reached"] = {str(number): end for number, end in now.items()}
            return all(now.get(int(number), 0) > offset for number, offset in wanted.items())

        run.wait_for("the new topic to hold records" + (" beyond the checkpoint's offsets" if parameters.grown else ""), reached, GROW_S)
        down.lift(run.folder)

    def damage(self, run: RunContext, parameters: Any, checkpoint: Path, batch: int) -> dict[str, Any]:
        cluster, topic, below = Cluster(run.testbed.direct_kafka), run.job.input_topic, ends(run)
        before = cluster.topic_id(topic)
        target = {"below": below, "unread": unread(run, below), "committed": checkpoints.committed(checkpoint), "grown": parameters.grown}
        down.keep_down(run.folder, QUIET_S + GROW_S)
        cluster.delete_topics([topic])
        run.wait_for(f"{topic} to be gone", lambda: not cluster.partitions(topic), GONE_S)
        cluster.create_topics({topic: len(below)}, **{"retention.ms": "-1"})
        MadeAnew({int(number): end for number, end in below.items()}, batch).write(run.folder)
        return {**target, "made_anew": below, "id": before, "began": {str(number): at for number, at in cluster.end_offsets(topic).items()}}

    def vanished(self, run: RunContext, target: dict[str, Any]) -> list[EvidenceCheck]:
        now = Cluster(run.testbed.direct_kafka).topic_id(target["topic"])
        held = sum(target["below"].values())
        where = "beyond" if target["grown"] else "not beyond"
        beyond = all(target["reached"][number] > offset for number, offset in target["committed"].items())
        return [
            EvidenceCheck("the topic is another one", now != target["id"], f"its id was {target['id']}, it is {now}"),
            EvidenceCheck("what it held is gone", not any(target["began"].values()), f"{held} records, {target['unread']} of them unread"),
            EvidenceCheck(
                f"it reached {where} the checkpoint's offsets as the job was started",
                beyond == target["grown"],
                f"{target['reached']}, the checkpoint has {target['committed']}",
            ),
        ]
