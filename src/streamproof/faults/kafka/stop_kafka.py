"""``stop_kafka``: the broker is shut down in good order, and started again.

The model: an upgrade, a restart for a new setting. The broker finishes what it is at, forces everything to disk and says good-bye; with one
broker nothing can be read or written until it is back.

Evidence: its process is gone, a probe gets no answer as long as it is away, the job commits nothing meanwhile, and goes on afterwards.
Checked against: Kafka 4.1 in KRaft mode (controlled shutdown on SIGTERM).
"""

from __future__ import annotations

import signal

from streamproof.faults.outage import Stopped


class StopKafka(Stopped):
    what = role = "kafka"
    by = signal.SIGTERM
    name = "stop_kafka"
    summary = "Shut the broker down in good order; it is started again"
    target = "the broker"
