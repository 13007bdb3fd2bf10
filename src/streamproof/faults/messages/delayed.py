"""What ``delay_request`` and ``delay_answer`` share: some messages in a row are late, each by the same time."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from streamproof.faults.fault import EvidenceCheck, RunContext
from streamproof.faults.messages.message_fault import MessageFault, MessageParameters
from streamproof.testbed.messages import Action, Event, Message, Rule, Side


class DelayParameters(MessageParameters):
    delay_ms: int = Field(1000, ge=1, le=30_000, description="By how much each is late, in ms")
    times: int = Field(1, ge=1, le=100, description="How many of them, one after the other")


class Delayed(MessageFault):
    """Subclasses name the side that is late."""

    side: Side
    parameters_model = DelayParameters
    client_is_answered = True

    def rule(self, parameters: DelayParameters) -> Rule:
        action: Action = "delay_request" if self.side == "request" else "delay_answer"
        return Rule("", parameters.message, action, nth=parameters.nth, every=1, times=parameters.times, delay_ms=parameters.delay_ms)

    def effects(self, run: RunContext, parameters: Any, target: dict[str, Any], struck: Message) -> list[EvidenceCheck]:
        def delayed() -> list[Event]:
            events = run.testbed.messages.events(target["after"], target["rule"])
            return [event for event in events if event.kind == "delayed"]

        wait_s = 30 + parameters.times * (1 + parameters.delay_ms / 1000)
        all_of_them = run.eventually(lambda: len(delayed()) >= parameters.times, wait_s)
        late_ms = [(event.at_ns - event.message.at_ns) / 1e6 for event in delayed() if event.message is not None]
        least = min(late_ms, default=0.0)
        late = EvidenceCheck(
            f"{parameters.times} of them were late by {parameters.delay_ms} ms",
            all_of_them and least >= parameters.delay_ms,
            f"{len(late_ms)}, the least by {least:.0f} ms",
        )
        return [late, self.did(run, target, " all the same")]
