"""``lose_answer``: the server does what a message asks for, and its client never learns.

The model: the connection breaks after the request was handled and before its answer arrived; the oldest question of distributed commits.
The client cannot tell this from a request that was lost (``drop_request``). Who sends again must be recognised (an idempotent producer, a
ledger), who gives up must look what became of it.

The request is forwarded, the server's answer is read and thrown away, and the connection is cut.

Evidence: the server's answer, which says that it did it; the connection is closed; what the client did next was seen; the job committed a
batch afterwards.
Checked against: Kafka 4.1, PostgreSQL 16, librdkafka 2.16, the Java client 3.9.
"""

from __future__ import annotations

from typing import Any

from streamproof.faults.fault import EvidenceCheck, RunContext
from streamproof.faults.messages.message_fault import MessageFault
from streamproof.testbed.messages import Message, Rule


class LoseAnswer(MessageFault):
    name = "lose_answer"
    summary = "Let the server do what one message asks for, and cut its client before the answer arrives"

    def rule(self, parameters: Any) -> Rule:
        return Rule("", parameters.message, "lose_answer", nth=parameters.nth)

    def effects(self, run: RunContext, parameters: Any, target: dict[str, Any], struck: Message) -> list[EvidenceCheck]:
        did = self.did(run, target, ", and its answer was thrown away")
        return [did, self.ended(run, target, struck)]
