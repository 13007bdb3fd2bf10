"""A job on Kafka Streams, as an experiment describes it and as it is started."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field

from streamproof.engines.java.spec import JavaJob, JavaSpec
from streamproof.jobs.profile import Role, Trait
from streamproof.testbed.embedded import Testbed

VERSION: Literal["4.3"] = "4.3"


@dataclass(frozen=True, kw_only=True)
class KafkaStreamsJob(JavaJob):
    """Each of its ``instances`` is a Java of its own, on Kafka Streams of a ``version``."""

    version: str = VERSION


class KafkaStreamsSpec(JavaSpec):
    """Instances of one application, each a Java of its own. Its `application.id` must be {group}, STREAMPROOF_GROUP in the environment."""

    jars: ClassVar[Path | None] = Path(__file__).with_name("jars.lock")
    relies_on: ClassVar[frozenset[Trait]] = frozenset({Trait.RESET_TOOL})

    engine: Literal["kafka_streams"] = "kafka_streams"
    version: Literal["4.3", "4.2"] = Field(VERSION, description="Of Kafka Streams; 4.2 is there for what 4.3 does otherwise")
    instances: int = Field(2, ge=1, le=8, description="How many instances run side by side; each of them can be killed alone")

    @property
    def roles(self) -> frozenset[Role]:
        return frozenset({Role.DRIVER, Role.WORKERS})

    def job(self, testbed: Testbed, **common: Any) -> KafkaStreamsJob:
        return KafkaStreamsJob(version=self.version, instances=self.instances, **self.described(**common))
