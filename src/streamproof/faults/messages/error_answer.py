"""``error_answer``: the client gets an error in place of the answer.

The model: a server that refuses for a while (``kind: retriable``: not the leader any more, the coordinator is loading, a serialization
failure) or for good (``kind: fatal``: not authorized, the administrator ended the session). With ``forward`` the server does what was asked
and the client is told that it failed: what a broken proxy does, or a server that dies after it has acted.

Evidence: the client got the error; the server did it (``forward``) or got nothing; what the client did next was seen; the job committed a
batch afterwards.
Checked against: Kafka 4.1's error codes, PostgreSQL 16's (a fatal error ends the session).
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from streamproof.faults.fault import EvidenceCheck, RunContext
from streamproof.faults.messages.message_fault import MessageFault, MessageParameters
from streamproof.testbed.messages import STATEMENTS, Message, Rule

NOT_LEADER, COORDINATOR_LOADING, CONCURRENT_TRANSACTIONS = "6", "14", "51"
TOPIC_DENIED, GROUP_DENIED, TRANSACTION_DENIED = "29", "30", "53"
SERIALIZATION_FAILURE, ADMIN_SHUTDOWN = "40001", "57P01"
RETRIABLE = {
    "Produce": NOT_LEADER,
    "Fetch": NOT_LEADER,
    "EndTxn": CONCURRENT_TRANSACTIONS,
    "AddPartitionsToTxn": CONCURRENT_TRANSACTIONS,
    "AddOffsetsToTxn": CONCURRENT_TRANSACTIONS,
}
FATAL = {"OffsetCommit": GROUP_DENIED, "JoinGroup": GROUP_DENIED, "SyncGroup": GROUP_DENIED, "Heartbeat": GROUP_DENIED}
TRANSACTIONAL = ("InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn")


class ErrorAnswerParameters(MessageParameters):
    kind: Literal["retriable", "fatal"] = Field("retriable", description="An error after which a client should try again, or should not")
    forward: bool = Field(False, description="The server does all the same what was asked")


def code(message: str, kind: str) -> str:
    """The error that the client gets: Kafka's code, or an SQLSTATE."""
    if message in STATEMENTS:
        return SERIALIZATION_FAILURE if kind == "retriable" else ADMIN_SHUTDOWN
    if kind == "retriable":
        return RETRIABLE.get(message, COORDINATOR_LOADING)
    return FATAL.get(message, TRANSACTION_DENIED if message in TRANSACTIONAL else TOPIC_DENIED)


class ErrorAnswer(MessageFault):
    name = "error_answer"
    summary = "Answer one message with an error, retriable or fatal, whether or not the server did what it asks for"
    parameters_model = ErrorAnswerParameters

    def rule(self, parameters: ErrorAnswerParameters) -> Rule:
        return Rule(
            "",
            parameters.message,
            "error_answer",
            nth=parameters.nth,
            code=code(parameters.message, parameters.kind),
            fatal=parameters.kind == "fatal" and parameters.message in STATEMENTS,
            forward=parameters.forward,
        )

    def effects(self, run: RunContext, parameters: Any, target: dict[str, Any], struck: Message) -> list[EvidenceCheck]:
        wanted = code(parameters.message, parameters.kind)
        replaced = self.event(run, target, "replaced")
        answer = replaced.message if replaced is not None else None
        got = answer is not None and wanted in (answer.sqlstate, *(str(error) for error in answer.errors))
        told = EvidenceCheck(f"the client got error {wanted}", got, answer.outcome if answer is not None else "nothing was replaced")
        return [told, self.did(run, target, " all the same") if parameters.forward else self.did_not(run, target)]
