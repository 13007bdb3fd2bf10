"""``hold_message``: a message waits on its way for a while, and goes on.

The model: a packet that a full queue delays, a server that is busy, a pause of one side's process at the worst moment. All that its sender
has sent before has arrived; what it sends afterwards waits behind it.

With ``side: request`` the server does not get the message until it is released; with ``side: answer`` the server has done it, and its
client does not know yet.

Evidence: the message was held all the time; a request was answered only once it had been released, done or refused by then, an answer said
that the server had done it; for EndTxn the coordinator's state of the transaction, for Produce the partition's end, say the same; what the
client did next was seen; the job committed a batch afterwards.
Checked against: Kafka 4.1 (a broker handles one request of a connection at a time, in order), PostgreSQL 16 (a statement outside of a
transaction is committed before its ReadyForQuery is sent).
"""

from __future__ import annotations

import time
from typing import Any, Literal

import psutil
from pydantic import Field

from streamproof.faults.fault import EvidenceCheck, RunContext
from streamproof.faults.messages.message_fault import MessageFault, MessageParameters, client_of
from streamproof.jobs.profile import Role
from streamproof.kafka.transactions import Coordinator
from streamproof.testbed.kafka import Cluster
from streamproof.testbed.messages import Event, Message, NoSuchThing, Rule

ENDED = ("PrepareCommit", "CompleteCommit", "PrepareAbort", "CompleteAbort")


class HoldMessageParameters(MessageParameters):
    side: Literal["request", "answer"] = Field("request", description="The request, before the server gets it, or its answer")
    seconds: float = Field(3.0, ge=0.1, le=60.0, description="How long it is held, in s")


class HoldMessage(MessageFault):
    name = "hold_message"
    summary = "Hold one message between the job and a server for a while, the request or its answer"
    parameters_model = HoldMessageParameters
    client_is_answered = True

    def rule(self, parameters: HoldMessageParameters) -> Rule:
        return Rule("", parameters.message, "hold", nth=parameters.nth, side=parameters.side)

    def effects(self, run: RunContext, parameters: Any, target: dict[str, Any], struck: Message) -> list[EvidenceCheck]:
        held = self.wait(run, target, "the message to be held", "held", parameters.seconds + 30)
        assert held.message is not None
        client = client_of(run, held.message)
        begun, known = time.monotonic(), _known_by_the_server(run, parameters.side, held)
        run.let_pass(max(0.0, parameters.seconds - (time.monotonic() - begun)))
        waited = any(waiting.id == held.held for waiting in run.testbed.messages.state().held)
        checks = [EvidenceCheck(f"its {parameters.side} was held for {parameters.seconds:g} s", waited, _whose(client)), *known]
        try:
            run.testbed.messages.release(held.held)
        except NoSuchThing as error:
            return [*checks, EvidenceCheck("it was released", False, str(error))]
        return [*checks, self._answered(run, target) if parameters.side == "request" else self.did(run, target, "")]

    def _answered(self, run: RunContext, target: dict[str, Any]) -> EvidenceCheck:
        """That the server got it in the end. It may refuse by then what it would have done before: a producer that was fenced meanwhile."""
        answer = self.answer(run, target)
        detail = "no answer" if answer is None else "it did it" if answer.done else f"it refused it: {answer.outcome}"
        return EvidenceCheck("the server answered it once it was released", answer is not None, detail)


def _whose(client: tuple[Role, psutil.Process] | None) -> str:
    if client is None:
        return "its client is no process of the job's"
    role, process = client
    return f"its client is the {role}, pid {process.pid}"


def _known_by_the_server(run: RunContext, side: str, held: Event) -> list[EvidenceCheck]:
    """What the server says of the message while it is held, where it can be asked."""
    message = held.message
    assert message is not None
    if message.message == "EndTxn" and message.transactional_id is not None:
        with Coordinator(run.testbed.direct_kafka) as coordinator:
            _, state = coordinator.holder(message.transactional_id)
        expected = ("Ongoing",) if side == "request" else ENDED
        return [EvidenceCheck(f"the coordinator says {' or '.join(expected)}", state in expected, f"{message.transactional_id} is {state}")]
    if message.message == "Produce" and side == "answer":
        ends = {place: Cluster(run.testbed.direct_kafka).end_offsets(place.topic)[place.partition] for place in message.places}
        written = bool(ends) and all(place.offset is not None and place.offset < end for place, end in ends.items())
        detail = ", ".join(f"{place.topic}/{place.partition}: {place.offset} written, ends at {end}" for place, end in ends.items())
        return [EvidenceCheck("its records are in their partitions", written, detail)]
    return []
