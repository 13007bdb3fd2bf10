"""A job that is a program in Java, as an experiment describes it: a source or a jar, the class to run, options of its Java."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator

from streamproof import settings
from streamproof.engines.command.job import CommandJob, OwnJobSpec
from streamproof.errors import BadInput


@dataclass(frozen=True, kw_only=True)
class JavaJob(CommandJob):
    """``program`` is the absolute path of its source, or of its jar, in which ``main`` is the class to run."""

    command: list[str] = field(default_factory=list)
    program: str
    main: str
    java_options: list[str] = field(default_factory=list)


class JavaSpec(OwnJobSpec):
    source: str | None = Field(None, pattern=r"\.java$", description="A file of Java, from the project's folder, which is compiled and run")
    jar: str | None = Field(None, description="A jar, from the project's folder, which comes before the engine's own on the class path")
    main: str | None = Field(None, description="The class of the jar to run")
    java_options: list[str] = Field(default_factory=lambda: ["-Xmx192m"], description="Options of its Java")

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
    def _program(self) -> Path:
        return (settings.project() / (self.source or self.jar or "")).resolve()

    def check(self) -> None:
        super().check()
        if not self._program.is_file():
            raise BadInput(f"job: expected a file, {self._program} is none")

    def described(self, **common: Any) -> dict[str, Any]:
        program = {"program": str(self._program), "main": self.main or self._program.stem, "java_options": self.java_options}
        return super().described(**{**program, **common})
