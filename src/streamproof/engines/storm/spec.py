"""A topology on Storm, as an experiment describes it and as it is started."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from streamproof import settings
from streamproof.engines.command.job import CommandJob, OwnJobSpec
from streamproof.engines.command.placeholders import Variable, check_own, template
from streamproof.errors import BadInput
from streamproof.jobs.profile import Role
from streamproof.testbed.embedded import Testbed


@dataclass(frozen=True, kw_only=True)
class StormJob(CommandJob):
    """``topology`` is the absolute path of its Flux file, ``resources`` those of the files that its shell bolts run, ``sources`` those of
    the Java that goes with it; ``variables`` are what placeholders of the topology's own stand for."""

    command: list[str] = field(default_factory=list)
    topology: str
    resources: list[str] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)


class StormSpec(OwnJobSpec):
    """A Storm of its own: ZooKeeper, a Nimbus, a Supervisor with one worker, in which the topology runs."""

    jars: ClassVar[Path | None] = Path(__file__).with_name("jars.lock")

    engine: Literal["storm"] = "storm"
    topology: str = Field(description="A topology for Flux, from the project's folder, with placeholders as {bootstrap_servers}")
    resources: list[str] = Field(default_factory=list, description="Files that its shell bolts run, from the project's folder")
    sources: list[str] = Field(default_factory=list, description="Files of Java that go with it, from the project's folder; compiled")
    variables: dict[Variable, str] = Field(default_factory=dict, description="Placeholders of the topology's own, and what they stand for")

    @model_validator(mode="after")
    def _own_variables(self) -> Self:
        check_own(self.variables)
        return self

    @property
    def default_name(self) -> str:
        return Path(self.topology).stem

    @property
    def roles(self) -> frozenset[Role]:
        bolts = {Role.PYTHON_WORKERS} if self.resources else set()
        return frozenset({Role.DRIVER, Role.COORDINATOR, Role.WORKERS, *bolts})

    def check(self) -> None:
        super().check()
        for path in map(self._path, [*self.resources, *self.sources]):
            if not path.is_file():
                raise BadInput(f"job: expected a file, {path} is none")
        template(self._path(self.topology), "topology", self.variables)

    def _path(self, name: str) -> Path:
        return (settings.project() / name).resolve()

    def job(self, testbed: Testbed, **common: Any) -> StormJob:
        return StormJob(
            topology=str(self._path(self.topology)),
            resources=[str(self._path(name)) for name in self.resources],
            sources=[str(self._path(name)) for name in self.sources],
            variables=self.variables,
            **self.described(**common),
        )
