"""``delay_request``: requests of one kind are late, some in a row.

The model: a slow way to the server: everything behind the message on its connection waits with it.

Evidence: each was late by the delay, measured where it was delayed; the server did what they asked for; what the client did next was seen;
the job committed a batch afterwards.
Checked against: Kafka 4.1, PostgreSQL 16.
"""

from __future__ import annotations

from streamproof.faults.messages.delayed import Delayed


class DelayRequest(Delayed):
    side = "request"
    name = "delay_request"
    summary = "Let requests of one kind, some in a row, arrive late"
