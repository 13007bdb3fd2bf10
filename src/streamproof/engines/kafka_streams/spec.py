"""A job on Kafka Streams, as an experiment describes it and as it is started."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from streamproof import settings
from streamproof.engines.command.job import CommandJob, OwnJobSpec
from streamproof.errors import BadInput
from streamproof.jobs.profile import Role
from streamproof.testbed.embedded import Testbed


@dataclass(frozen=True, kw_only=True)
class KafkaStreamsJob(CommandJob):
    """``program`` is the absolute path of its source, or of its jar, in which ``main`` is the class to run."""

    command: list[str] = field(default_factory=list)
    program: str
    main: str
    java_options: list[str] = field(default_factory=list)


class KafkaStreamsSpec(OwnJobSpec):
    """Instances of one application, each a Java of its own. Its `application.id` must be {group}, STREAMPROOF_GROUP in the environment."""

    jars: ClassVar[Path | None] = Path(__file__).with_name("jars.lock")

    engine: Literal["kafka_streams"] = "kafka_streams"
    source: str | None = Field(None, pattern=r"\.java$", description="A file of Java, from the project's folder, which is compiled and run")
    jar: str | None = Field(None, description="A jar, from the project's folder: its own libraries, then Kafka Streams as it was set up")
    main: str | None = Field(None, description="The class of the jar to run")
    instances: int = Field(2, ge=1, le=8, description="How many instances run side by side; each of them can be killed alone")
    java_options: list[str] = Field(default_factory=lambda: ["-Xmx192m"], description="Options of each instance's Java")

    @model_validator(mode="after")
    def _one_program(self) -> Self:
        if (self.source is None) == (self.jar is None):
            raise ValueError("expected one of source and jar, the program")
        if (self.main is None) != (self.jar is None):
            raise ValueError("main: a jar needs the class to run, and a source has it by its name")
        return self

    @property
    def default_name(self) -> str:
        return Path(self.source or self.jar or "").stem.lower()

    @property
    def roles(self) -> frozenset[Role]:
        return frozenset({Role.DRIVER, Role.WORKERS})

    @property
    def _program(self) -> Path:
        return (settings.project() / (self.source or self.jar or "")).resolve()

    def check(self) -> None:
        super().check()
        if not self._program.is_file():
            raise BadInput(f"job: expected a file, {self._program} is none")

    def job(self, testbed: Testbed, **common: Any) -> KafkaStreamsJob:
        return KafkaStreamsJob(
            program=str(self._program),
            main=self.main or self._program.stem,
            instances=self.instances,
            java_options=self.java_options,
            **self.described(**common),
        )
