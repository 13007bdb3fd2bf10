"""The engine ``kafka_streams``: each start is so many instances of one application, which share its partitions as a consumer group.

Checked against: Kafka Streams 4.3 (an instance that dies is missed after its session's time-out, and its tasks go to another).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from streamproof.engines import members
from streamproof.engines.command.engine import MEMBERS, CommandEngine, instances
from streamproof.engines.command.following import Source
from streamproof.engines.command.job import CommandJob
from streamproof.engines.java import compiled
from streamproof.engines.kafka_streams import application
from streamproof.engines.kafka_streams.application import ApplicationOffsets
from streamproof.engines.kafka_streams.spec import VERSION, KafkaStreamsJob, KafkaStreamsSpec
from streamproof.jobs.job import Job
from streamproof.jobs.profile import Role
from streamproof.testbed import install, spark
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.kafka import Cluster
from streamproof.testbed.process import TestbedError

JARS = "kafka-streams"
VERSIONED = ("kafka-streams-", "kafka-clients-")
"""The jars that another version has as a set of its own; the others it shares."""


class KafkaStreamsEngine(CommandEngine):
    name = "kafka_streams"
    job_type = KafkaStreamsJob
    spec_type = KafkaStreamsSpec
    jars = KafkaStreamsSpec.jars

    def known(self, job: Job, role: Role, testbed: Testbed) -> frozenset[str]:
        """The members of the application's consumer group."""
        assert isinstance(job, KafkaStreamsJob)
        try:
            return Cluster(testbed.direct_kafka).group_members(job.consumer_group) if role is Role.WORKERS else frozenset()
        except TestbedError:  # it does not answer now
            return frozenset()

    def topics(self, job: Job, testbed: Testbed) -> list[str]:
        """What passes between its parts, and the changelogs of its state."""
        return application.internal_topics(Cluster(testbed.direct_kafka), job.name)

    def source(self, job: CommandJob, testbed: Testbed) -> Source:
        return super().source(job, testbed) if job.follows_output else ApplicationOffsets(job, testbed.direct_kafka)

    def command(self, job: CommandJob, known: Mapping[str, str]) -> list[str]:
        assert isinstance(job, KafkaStreamsJob)
        jars = _jars(job.version)
        path = os.pathsep.join(map(str, [compiled.program(job, jars), *jars]))
        command = [str(install.java_executable()), *job.java_options, "-XX:+UseSerialGC", "-cp", path, job.main]
        return members.command(job.state / MEMBERS, instances(job, command))


def _jars(version: str) -> list[Path]:
    if version == VERSION:
        return spark.jars(JARS)
    return [*spark.jars(f"{JARS}-{version.replace('.', '-')}"), *(jar for jar in spark.jars(JARS) if not jar.name.startswith(VERSIONED))]
