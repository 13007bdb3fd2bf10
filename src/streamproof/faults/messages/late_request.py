"""``late_request``: a message arrives after its client was cut, and perhaps after the client has sent others over a new connection.

The model: the request is on its way, in a buffer of the network or of the server, when the connection breaks. The client connects anew and
goes on. Then the old request is handled. A protocol that numbers its requests refuses it (Kafka's producer epochs from KIP-890 on); one
that does not takes it for a new one. An EndTxn that is late can so end the *next* transaction, which is still open.

The client is cut at once; the request is delivered on the connection to the server that was kept, after ``delay_ms``, or once the server
has answered the next ``until`` of the same client and transaction.

Evidence: the client's connection was cut; the server answered the late request (what it said is in the detail); what the client did next
was seen; the job committed a batch afterwards.
Checked against: Kafka 4.1 with librdkafka 2.16 (no KIP-890: the stale commit is taken) and the Java client 3.9.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field, ValidationInfo, field_validator

from streamproof.faults.fault import EvidenceCheck, RunContext
from streamproof.faults.messages.message_fault import MessageFault, MessageName, MessageParameters
from streamproof.testbed.messages import STATEMENTS, Message, Rule


class LateRequestParameters(MessageParameters):
    delay_ms: int = Field(1200, ge=1, le=30_000, description="How much later it is delivered, in ms; with `until`: at the latest")
    until: MessageName | None = Field(None, description="Deliver it once the server has answered the next message of this kind")

    @field_validator("until")
    @classmethod
    def _of_the_same_server(cls, until: str | None, info: ValidationInfo) -> str | None:
        message = info.data.get("message")
        if until is not None and message is not None and (until in STATEMENTS) != (message in STATEMENTS):
            raise ValueError(f"expected a message to the same server as {message}, came {until}")
        return until


class LateRequest(MessageFault):
    name = "late_request"
    summary = "Cut the client of one message, and deliver the message to the server afterwards"
    parameters_model = LateRequestParameters

    def rule(self, parameters: LateRequestParameters) -> Rule:
        return Rule("", parameters.message, "late_request", nth=parameters.nth, delay_ms=parameters.delay_ms, until=parameters.until or "")

    def effects(self, run: RunContext, parameters: Any, target: dict[str, Any], struck: Message) -> list[EvidenceCheck]:
        late = self.event(run, target, "late", 30 + parameters.delay_ms / 1000)
        after_ms = 0.0 if late is None else (late.at_ns - struck.at_ns) / 1e6
        delivered = EvidenceCheck("it was delivered late", late is not None, f"{after_ms:.0f} ms late")
        answer = self.answer(run, target)
        outcome = "no answer" if answer is None else answer.outcome
        reached = EvidenceCheck("the server answered it, to nobody", answer is not None, f"it answered {outcome}")
        return [delivered, reached, self.ended(run, target, struck)]
