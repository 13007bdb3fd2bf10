"""``reset_kafka``: reset every connection to Kafka as soon as it is made, for a while.

The model: a load balancer that has forgotten its connections, an overloaded host: each connection is made, and answered with a TCP reset.

A Toxiproxy ``reset_peer`` toxic on both directions, toxicity 1.0. Healing removes it; a connection that was swallowed is closed with that.

Evidence: the proxy reads back as it was asked for, a probe through it gets no answer as long as it lasts, the job commits nothing
meanwhile, and goes on afterwards.
Checked against: Toxiproxy 2.12 (a toxic that is removed closes the connections it had stopped).
"""

from __future__ import annotations

from chaos.faults.outage import LinkOutage
from testbed.embedded import KAFKA_PROXY


class ResetKafka(LinkOutage):
    proxy = KAFKA_PROXY
    toxic = ("reset_peer", {"timeout": 0})
    what = "the link to Kafka"
    name = "reset_kafka"
    summary = "Reset every connection to Kafka as soon as it is made, for a while"
    target = "the link to Kafka"
