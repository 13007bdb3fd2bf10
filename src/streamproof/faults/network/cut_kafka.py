"""``cut_kafka``: close every connection to Kafka, and refuse new ones, for a while.

The model: a firewall's rule, a cable that is pulled at the switch: connections end at once and cannot be made anew. Clients learn of it at
once and keep on trying.

The proxy is disabled. Healing removes it; a connection that was swallowed is closed with that.

With a ``role`` it breaks the link of the driver or of the executors alone; each has a proxy of its own.

Evidence: the proxy reads back as it was asked for, a probe through it gets no answer as long as it lasts, the job commits nothing
meanwhile, and goes on afterwards. With a ``role``, too: the connections through the proxy are those of the role's processes only, and
probes through the other's proxy are answered all the time.
Checked against: Toxiproxy 2.12 (a toxic that is removed closes the connections it had stopped).
"""

from __future__ import annotations

from streamproof.faults.outage import KafkaLinkOutage


class CutKafka(KafkaLinkOutage):
    ends_connections = True
    what = "the link to Kafka"
    name = "cut_kafka"
    summary = "Close every connection to Kafka, and refuse new ones, for a while"
    target = "the link to Kafka"
