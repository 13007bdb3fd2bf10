"""``drop_request``: a message never reaches its server.

The model: the connection breaks before the request arrived (``how: cut``), or a firewall forgot the connection and drops what comes
(``how: black_hole``): nothing is refused, the client waits for an answer until its own time is over.

Evidence: no answer to it came from the server; with ``cut`` the connection is closed; what the client did next was seen; the job committed
a batch afterwards.
Checked against: Kafka 4.1, PostgreSQL 16, librdkafka 2.16, the Java client 3.9 (which gives up after `request.timeout.ms`, 30 s).
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from streamproof.faults.fault import EvidenceCheck, RunContext
from streamproof.faults.messages.message_fault import MessageFault, MessageParameters
from streamproof.testbed.messages import Message, Rule


class DropRequestParameters(MessageParameters):
    how: Literal["cut", "black_hole"] = Field(
        "cut", description="Cut the connection, or swallow all that the client sends on it from there, without an answer"
    )


class DropRequest(MessageFault):
    name = "drop_request"
    summary = "Let one message never reach its server, and cut its client or leave it without an answer"
    parameters_model = DropRequestParameters

    def rule(self, parameters: DropRequestParameters) -> Rule:
        return Rule("", parameters.message, "drop_request", nth=parameters.nth, how=parameters.how)

    def effects(self, run: RunContext, parameters: Any, target: dict[str, Any], struck: Message) -> list[EvidenceCheck]:
        dropped = self.event(run, target, "dropped")
        checks = [EvidenceCheck("it was dropped", dropped is not None, f"on connection {struck.connection}")]
        if parameters.how == "cut":
            checks.append(self.ended(run, target, struck))
        return [*checks, self.did_not(run, target)]
