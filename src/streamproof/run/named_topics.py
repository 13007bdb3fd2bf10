"""Topics whose names a user's job has fixed: they are made for a run, and deleted with it.

On the testbed's own Kafka whatever is left of such a topic is deleted. On a Kafka that runs elsewhere a topic that is there is somebody's:
the run is refused, before it has touched anything.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

from streamproof.testbed.embedded import Testbed
from streamproof.testbed.external import Outside
from streamproof.testbed.kafka import Cluster
from streamproof.testbed.process import TestbedError, wait_until

GONE_S = 30.0


def make_way(topics: Iterable[str], testbed: Testbed) -> None:
    """Raises TestbedError naming a topic that is somebody's."""
    cluster = Cluster(testbed.direct_kafka)
    for topic in topics:
        if not cluster.partitions(topic):
            continue
        if isinstance(testbed, Outside):
            raise TestbedError(
                f"the topic {topic} exists at {testbed.direct_kafka}: a run makes its topics and deletes them, and would delete that. "
                "Name another in `reads` and `delivers`, or leave `topic` out and take {input_topic} and {output_topic}"
            )
        cluster.delete_topics([topic])
        wait_until(f"the topic {topic} to be gone", functools.partial(_gone, cluster, topic), GONE_S)


def _gone(cluster: Cluster, topic: str) -> bool:
    return not cluster.partitions(topic)
