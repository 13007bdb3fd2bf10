"""A job on DStreams, as an experiment describes it and as it is started."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field

from streamproof.engines.java.spec import JavaJob, JavaSpec
from streamproof.testbed.embedded import Testbed


@dataclass(frozen=True, kw_only=True)
class DStreamsJob(JavaJob):
    """``conf`` are settings of Spark that replace the engine's own."""

    conf: dict[str, str] = field(default_factory=dict)


class DStreamsSpec(JavaSpec):
    """A driver in one Java, with its tasks in threads of it (`local[4]`, unless `conf` says otherwise)."""

    jars: ClassVar[Path | None] = Path(__file__).with_name("jars.lock")

    engine: Literal["dstreams"] = "dstreams"
    java_options: list[str] = Field(default_factory=lambda: ["-Xmx512m"], description="Options of its Java")
    conf: dict[str, str] = Field(default_factory=dict, description="Settings of Spark; they replace the engine's")

    def job(self, testbed: Testbed, **common: Any) -> DStreamsJob:
        return DStreamsJob(conf=self.conf, **self.described(**common))
