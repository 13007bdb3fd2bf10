"""``delay_answer``: answers of one kind are late, some in a row.

The model: a slow way back: the server has done it, and its client learns it late, perhaps after it gave up.

Evidence: each was late by the delay, measured where it was delayed; the server did what they asked for; what the client did next was seen;
the job committed a batch afterwards.
Checked against: Kafka 4.1, PostgreSQL 16.
"""

from __future__ import annotations

from streamproof.faults.messages.delayed import Delayed


class DelayAnswer(Delayed):
    side = "answer"
    name = "delay_answer"
    summary = "Let answers of one kind, some in a row, arrive late"
