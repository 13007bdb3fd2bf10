"""``reset_kafka``: reset every connection to Kafka as soon as it is made, for a while.

The model: a load balancer that has forgotten its connections, an overloaded host: each connection is made, and answered with a TCP reset.

A Toxiproxy ``reset_peer`` toxic on both directions, toxicity 1.0. Healing removes it; a connection that was swallowed is closed with that.

With a ``role`` it breaks the link of the driver or of the executors alone; each has a proxy of its own.

Evidence: the proxy reads back as it was asked for, a probe through it gets no answer as long as it lasts, the job commits nothing
meanwhile, and goes on afterwards. With a ``role``, too: the connections through the proxy are those of the role's processes only, and
probes through the other's proxy are answered all the time.
Checked against: Toxiproxy 2.12 (a toxic that is removed closes the connections it had stopped).
"""

from __future__ import annotations

from streamproof.faults.outage import KafkaLinkOutage


class ResetKafka(KafkaLinkOutage):
    toxic = ("reset_peer", {"timeout": 0})
    ends_connections = True
    what = "the link to Kafka"
    name = "reset_kafka"
    summary = "Reset every connection to Kafka as soon as it is made, for a while"
    target = "the link to Kafka"
