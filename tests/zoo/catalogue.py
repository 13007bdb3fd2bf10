"""The catalogue of the zoo: for each job what it promises, the bug that was planted, and where a fault shows it."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, model_validator

from streamproof.verdict.anomaly import Anomaly
from streamproof.verdict.guarantee import Guarantee

ZOO = Path(__file__).resolve().parent
VARIANTS = ("buggy", "repaired")
Sentence = Annotated[str, Field(min_length=3)]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Shows(StrEnum):
    """What happens in the window. ``outage``: the link is cut there, longer than the job waits. ``held_request``: one message does not get
    to the server while others do. ``twin``: the old process is stopped there, and wakes when a new one works. ``stop``: it is asked to
    end there."""

    CRASH = "crash"
    OUTAGE = "outage"
    LOST_ANSWER = "lost_answer"
    ERROR_ANSWER = "error_answer"
    HELD_REQUEST = "held_request"
    TWIN = "twin"
    STOP = "stop"
    ADD_PARTITIONS = "add_partitions"


class Edge(Strict):
    """An edge of a window: a message on a link, or a file that appears. ``of`` says which of several it is."""

    link: Literal["kafka", "postgres"] | None = None
    message: Annotated[str, Field(pattern=r"^[A-Z][A-Za-z ]+$")] | None = None
    side: Literal["request", "answer"] | None = None
    file: Sentence | None = None
    of: Sentence | None = None

    @model_validator(mode="after")
    def _message_or_file(self) -> Self:
        message = (self.link, self.message, self.side)
        if (None in message) if self.file is None else any(part is not None for part in message):
            raise ValueError("an edge is a `file`, or a message: `link`, `message` and `side`")
        return self


class Window(Strict):
    after: Edge
    before: Edge
    shown_by: list[Shows] = Field(min_length=1)


class Demonstrated(Strict):
    """What was done by hand to the buggy job and to the repaired one, and how these runs ended."""

    by: Sentence
    buggy: Sentence
    repaired: Sentence


class Specimen(Strict):
    """A job of the zoo. Any one of ``anomalies`` proves the bug."""

    job: str = Field(pattern=r"^[a-z0-9]+(_[a-z0-9]+)*$")
    promises: Guarantee
    bug: Sentence
    anomalies: list[Anomaly] = Field(min_length=1)
    window: Window
    source: Sentence
    demonstrated: Demonstrated | None = None

    @property
    def folder(self) -> Path:
        return ZOO / self.job

    def script(self, variant: str) -> Path:
        return self.folder / f"{variant}.py"

    def experiment(self, variant: str) -> Path:
        return self.folder / f"{variant}.yaml"


def specimens() -> list[Specimen]:
    """Every job of the zoo. Raises ValidationError when the catalogue is not as it should be."""
    return TypeAdapter(list[Specimen]).validate_python(yaml.safe_load((ZOO / "catalogue.yaml").read_text()))
