"""``kill_kafka``: SIGKILL Kafka, and start it again on the data it left.

The model: a broker's machine loses power, or the kernel's out-of-memory killer takes it. Where there are several
brokers all of them are killed. Nothing can be read or written until they are back; transactions that were open or being committed are
finished or timed out by the broker that comes back.

Evidence: its process is gone, a probe gets no answer as long as it is away, the job commits nothing meanwhile, and goes on afterwards.
Checked against: Kafka 4.1 in KRaft mode (log recovery after an unclean shutdown; the transaction log tells which markers are missing).
"""

from __future__ import annotations

from streamproof.faults.outage import Killed


class KillKafka(Killed):
    what = role = "kafka"
    name = "kill_kafka"
    summary = "SIGKILL Kafka, all of its brokers; it is started again on the data it left"
    target = "the broker"
