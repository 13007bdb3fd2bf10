"""``pause_kafka``: SIGSTOP Kafka, all of its brokers, for a while, then let it go on.

The model: a long garbage collection, a disk that hangs, a virtual machine that is moved. Connections stay open, requests are neither
answered nor refused: clients find out by their timeouts only, and what they had sent may be carried out later.

Evidence: its process is stopped, a probe gets no answer as long as it is, the job commits nothing meanwhile, and goes on afterwards.
Checked against: Kafka 4.1 and librdkafka 2.16 (requests in flight are answered after SIGCONT, where they did not time out).
"""

from __future__ import annotations

from streamproof.faults.outage import Paused


class PauseKafka(Paused):
    what = role = "kafka"
    name = "pause_kafka"
    summary = "SIGSTOP Kafka, all of its brokers, for a while"
    target = "the broker"
