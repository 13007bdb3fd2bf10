"""A job that is any command line, as an experiment describes it and as it is started."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from streamproof import settings
from streamproof.jobs.job import Job
from streamproof.jobs.profile import JobProfile, Role, Trait
from streamproof.sinks.outputs import SINKS
from streamproof.testbed.embedded import Testbed
from streamproof.verdict.guarantee import Guarantee, Promise

Argument = Annotated[str, Field(min_length=1)]


@dataclass(frozen=True, kw_only=True)
class CommandJob(Job):
    """``cwd`` is absolute. The consumer group by whose offsets its progress is read has the job's ``name``."""

    command: list[str]
    cwd: str
    env: dict[str, str] = field(default_factory=dict)


class CommandSpec(BaseModel):
    """Such a job as an experiment describes it, in ``job``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    engine: Literal["command"] = "command"
    command: list[Argument] = Field(min_length=1, description="The command line; {python} is the Python that runs streamproof")
    promises: Guarantee = Field(description="What the job promises of every record")
    also_promises: frozenset[Promise] = Field(frozenset(), description="What it promises beside that: ordered, atomic")
    name: str | None = Field(None, pattern=r"^[a-z0-9][a-z0-9_-]{0,59}$", description="What it is called; its script's name when absent")
    cwd: str | None = Field(None, description="Its working folder, from the project's; the project's own when absent")
    env: dict[str, str] = Field(default_factory=dict, description="Variables of its own")
    transactions: bool = Field(False, description="Whether it writes in Kafka transactions whose ids begin with STREAMPROOF_JOB")

    @property
    def profile(self) -> JobProfile:
        traits = {Trait.GROUP_OFFSETS, *([Trait.KAFKA_TRANSACTIONS] if self.transactions else [])}
        return JobProfile(
            name=self.name or _script(self.command),
            engine=self.engine,
            sink="kafka",
            guarantee=self.promises,
            promises=self.also_promises,
            roles=frozenset({Role.DRIVER}),
            links=SINKS["kafka"].links,
            traits=frozenset(traits),
        )

    def job(self, testbed: Testbed, **common: Any) -> CommandJob:
        cwd = (settings.project() / (self.cwd or "")).resolve()
        return CommandJob(engine=self.engine, sink="kafka", command=self.command, cwd=str(cwd), env=self.env, **common)


def _script(command: list[str]) -> str:
    """The name of the command's script: its first argument that names a file with an ending, else the program's."""
    files = [Path(argument) for argument in command if Path(argument).suffix and not argument.startswith("-")]
    return (files or [Path(command[0])])[0].stem
