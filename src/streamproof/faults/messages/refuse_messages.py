"""``refuse_messages``: from one message on, all of its kind are cut off from their server, until the job has noticed.

The model: a server that serves nobody for this kind of request, however often its client tries (a leader that is gone, a table that is
locked away, a network that is broken in one direction). A client's own retries bridge a single loss; this lasts until they are at an end.

The job has noticed once it was started again, or went on to another step of its commit protocol; after ``seconds`` at the latest.

Evidence: none of them was answered by its server while it lasted; what the client did next was seen; the job committed a batch afterwards.
Checked against: Kafka 4.1, PostgreSQL 16, librdkafka 2.16 (which tries a Produce again until ``message.timeout.ms``, 300 s).
"""

from __future__ import annotations

import time
from typing import Any

from pydantic import Field

from streamproof.faults.fault import EvidenceCheck, RunContext
from streamproof.faults.messages.message_fault import GOES_ON_S, MessageFault, MessageParameters, ended_since
from streamproof.jobs import windows
from streamproof.jobs.windows import Trace
from streamproof.testbed.messages import Message, Rule

SOON_S = 0.5
"""What the job sent so shortly after the first of them may have been on its way."""
LOOK_S = 0.1


class RefuseMessagesParameters(MessageParameters):
    seconds: float = Field(12.0, ge=1.0, le=120.0, description="How long it lasts at most, where the job does not notice it, in s")


class RefuseMessages(MessageFault):
    name = "refuse_messages"
    summary = "From one message on, cut off all of its kind from their server, until the job has noticed"
    parameters_model = RefuseMessagesParameters

    def rule(self, parameters: RefuseMessagesParameters) -> Rule:
        return Rule("", parameters.message, "drop_request", nth=parameters.nth, every=1, how="cut")

    def evidence(self, run: RunContext, parameters: Any, target: dict[str, Any]) -> list[EvidenceCheck]:
        """Where the others ask for a batch after what was done, here one counts that was committed since the first was refused: a job that
        takes no notice may come to the end of what there is to read."""
        struck = self.event(run, target, "matched", 0.0)
        assert struck is not None
        assert struck.message is not None
        committed = run.progress.batches()
        checks = [*self.effects(run, parameters, target, struck.message), self.next_step(run, target, struck.message)]
        on = run.eventually(lambda: run.progress.batches() > committed, GOES_ON_S)
        return [*checks, EvidenceCheck("the job committed a batch afterwards", on, f"{run.progress.batches()} batches")]

    def effects(self, run: RunContext, parameters: Any, target: dict[str, Any], struck: Message) -> list[EvidenceCheck]:
        begun, noticed = time.monotonic(), None
        while noticed is None and time.monotonic() - begun < parameters.seconds:
            run.let_pass(LOOK_S)
            noticed = _noticed(run, parameters.message, struck)
        lasted_s = time.monotonic() - begun
        events = run.testbed.messages.events(target["after"], target["rule"])
        dropped, answered = (sum(event.kind == kind for event in events) for kind in ("dropped", "answered"))
        run.testbed.messages.disarm(target["rule"])
        detail = f"{dropped} of them in {lasted_s:.1f} s, until {noticed or 'its time was over: the job had not noticed'}"
        return [
            EvidenceCheck(f"each {parameters.message} was cut off", dropped > 0, detail),
            EvidenceCheck("its server got none of them", not answered, f"{answered} answers came"),
        ]


def _noticed(run: RunContext, message: str, struck: Message) -> str | None:
    """What the job did that shows that it knows; None when nothing was seen yet."""
    if (ended := ended_since(run, struck)) is not None:
        return ended
    run.testbed.messages.state()  # writes what is buffered
    since_ns = struck.at_ns + SOON_S * 1e9
    later = (step for step in Trace(run.job).all_steps() if step.begun_ns > since_ns and windows.kind(step.name) != message)
    return next((f"the job went on to {step.name}" for step in later), None)
