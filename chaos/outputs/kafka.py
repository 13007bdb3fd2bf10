"""The output topic."""

from __future__ import annotations

from typing import Any

from chaos import drain
from delivery.folder import RunFolder
from pipelines.job import Job
from testbed.embedded import Testbed
from testbed.kafka import Cluster


class KafkaOutput:
    def create(self, job: Job, testbed: Testbed, partitions: int) -> None:
        Cluster(testbed.direct_kafka).create_topics({job.output_topic: partitions})

    def drain(self, folder: RunFolder, job: Job, testbed: Testbed, timeout_s: float) -> dict[str, Any]:
        return drain.drain(folder, testbed.direct_kafka, job.output_topic, timeout_s)

    def delete(self, job: Job, testbed: Testbed) -> None:
        Cluster(testbed.direct_kafka).delete_topics([job.output_topic])
