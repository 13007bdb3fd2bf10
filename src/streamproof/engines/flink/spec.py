"""A job on Flink, as an experiment describes it and as it is started."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from streamproof import extras, settings
from streamproof.engines.command.job import CommandJob, OwnJobSpec
from streamproof.engines.command.placeholders import Variable, check_own, template
from streamproof.errors import BadInput
from streamproof.jobs.profile import JobProfile, Role, Trait
from streamproof.testbed.embedded import Testbed

PARALLELISM = 2
VERSION = "2.3.0"
PYTHON_S = 60.0
UNJUDGED = "whether an offset was committed before its output (the job goes on from its checkpoints)"


@dataclass(frozen=True, kw_only=True)
class FlinkJob(CommandJob):
    """``script`` is the absolute path of its SQL, or of its Python; ``config`` are settings of Flink that replace the engine's own,
    ``variables`` what placeholders of the script's own stand for. ``flink_python`` is the jar by which Flink runs a script of
    Python; empty for SQL. ``beside`` is the absolute path of the SQL of another job, empty without one."""

    command: list[str] = field(default_factory=list)
    script: str
    task_managers: int
    slots: int
    standby: bool = False
    config: dict[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    flink_python: str = ""
    beside: str = ""
    beside_variables: dict[str, str] = field(default_factory=dict)


class Beside(BaseModel):
    """Another job, which runs at the same time on a Flink of its own. It reads the same topic, as another group, and delivers to a topic of
    its own; what it delivers is not judged. {job} is the same in its SQL."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sql: str = Field(description="A file of Flink SQL, from the project's folder")
    variables: dict[Variable, str] = Field(default_factory=dict, description="Placeholders of that SQL's own, and what they stand for")


class FlinkSpec(OwnJobSpec):
    """A Flink of its own: a JobManager that runs this one job (application mode), and TaskManagers."""

    jars: ClassVar[Path | None] = Path(__file__).with_name("jars.lock")
    relies_on: ClassVar[frozenset[Trait]] = frozenset({Trait.SAVEPOINTS})

    engine: Literal["flink"] = "flink"
    sql: str | None = Field(None, description="A file of Flink SQL, from the project's folder, with placeholders as {bootstrap_servers}")
    python: str | None = Field(
        None, description="A PyFlink script, from the project's folder; `interpreter` is a Python that has apache-flink"
    )
    task_managers: int = Field(1, ge=1, le=4, description="How many TaskManagers it has")
    slots: int = Field(PARALLELISM, ge=1, le=8, description="How many slots each TaskManager has")
    standby: bool = Field(False, description="Whether a second JobManager stands by, with a ZooKeeper between the two")
    config: dict[str, str] = Field(default_factory=dict, description="Settings of Flink, as in its config.yaml; they replace the engine's")
    variables: dict[Variable, str] = Field(default_factory=dict, description="Placeholders of the SQL's own, and what they stand for")
    beside: Beside | None = Field(
        None, description="`sql` and `variables` of another job, which runs at the same time on a Flink of its own and is not judged"
    )

    @model_validator(mode="before")
    @classmethod
    def _progress(cls, data: Any) -> Any:
        """Flink goes on from its checkpoints. The offsets that it commits to the group are for others to look at, and come before or after
        the output: where each record is delivered, progress is what was delivered."""
        if isinstance(data, dict) and "progress" not in data and not data.get("results") and not data.get("expected"):
            return {**data, "progress": "output"}
        return data

    @model_validator(mode="after")
    def _one_script(self) -> Self:
        if (self.sql is None) == (self.python is None):
            raise ValueError("expected one of sql and python, the file that holds the job")
        check_own(self.variables)
        if self.beside is not None:
            check_own(self.beside.variables)
        if self.python is not None and self.interpreter is None:
            raise ValueError("interpreter: a PyFlink job needs a Python that has apache-flink; name it, or the folder of its environment")
        return self

    @property
    def default_name(self) -> str:
        return Path(self.sql or self.python or "").stem

    @property
    def roles(self) -> frozenset[Role]:
        return frozenset({Role.DRIVER, Role.COORDINATOR, Role.WORKERS})

    @property
    def profile(self) -> JobProfile:
        """As of any job, but that its group's offsets are not what it goes on from."""
        found = super().profile
        more = (UNJUDGED,) if found.knows_offsets and self.results is None else ()
        traits = found.traits | ({Trait.STANDBY} if self.standby else set())
        return replace(found, traits=traits, knows_offsets=False, not_judged=(*found.not_judged, *more))

    @property
    def _script(self) -> Path:
        return (settings.project() / (self.sql or self.python or "")).resolve()

    @property
    def _beside(self) -> Path:
        return (settings.project() / (self.beside.sql if self.beside is not None else "")).resolve()

    def check(self) -> None:
        super().check()
        extras.require("flink")
        if self.beside is not None:
            template(self._beside, "beside", self.beside.variables)
        if self.sql is not None:
            template(self._script, "sql", self.variables)
            return
        self._flink_python()
        if not self._script.is_file():
            raise BadInput(f"job: python: expected a file, {self._script} is none")

    def _flink_python(self) -> Path:
        """The jar by which Flink runs Python, of the job's own apache-flink. Raises BadInput unless it is of our version."""
        ask = [self._python(), "-c", "import os, pyflink; print(os.path.dirname(pyflink.__file__))"]
        done = subprocess.run(ask, capture_output=True, text=True, timeout=PYTHON_S, check=False)
        if done.returncode != 0:
            raise BadInput(f"job: interpreter: {ask[0]} has no apache-flink: pip install apache-flink=={VERSION}")
        jar = Path(done.stdout.strip()) / "opt" / f"flink-python-{VERSION}.jar"
        if not jar.is_file():
            there = ", ".join(path.name for path in jar.parent.glob("flink-python-*.jar")) or "none"
            raise BadInput(f"job: interpreter: expected apache-flink {VERSION}, {ask[0]} has {there}: pip install apache-flink=={VERSION}")
        return jar

    def job(self, testbed: Testbed, **common: Any) -> FlinkJob:
        return FlinkJob(
            script=str(self._script),
            task_managers=self.task_managers,
            slots=self.slots,
            standby=self.standby,
            config=self.config,
            variables=self.variables,
            flink_python=str(self._flink_python()) if self.python is not None else "",
            beside=str(self._beside) if self.beside is not None else "",
            beside_variables=self.beside.variables if self.beside is not None else {},
            **self.described(**common),
        )
