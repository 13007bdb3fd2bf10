"""An experiment as a form: what Airflow shows. Its presets are the project's experiments, as they are when this module is imported."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from streamproof import settings
from streamproof.experiment.model import MAX_SEED, Experiment, FaultName, FaultSpec, StrategyName, load, one_of
from streamproof.faults import FAULTS
from streamproof.load.spec import Source, Strict, Workload
from streamproof.shown import shown

MOST_LETTERS = 60
PRESETS = {path.stem: path for path in sorted(settings.experiments().glob("*.yaml"))}
PresetName = Annotated[str, one_of("preset", tuple(PRESETS)), Field(json_schema_extra={"enum": list(PRESETS)})]


class Form(Strict):
    """One experiment as a form: what Airflow shows and the API takes. It is made of its fields, or is a preset."""

    preset: PresetName | None = Field(
        None, description="An experiment of chaos/ in place of the fields below: leave them as they are, but for the seed"
    )
    job: str | None = Field(
        None, min_length=1, description="The YAML file of a job of your own, from the project's folder, in place of the strategy"
    )
    strategy: StrategyName = Field("two_phase_commit", description="How the job commits its output and its offsets")
    fault: FaultName | Literal["none"] = Field(
        "kill_executor", description="What is broken while it runs", json_schema_extra={"enum": [*FAULTS, "none"]}
    )
    workload: Source = Field(Source.FLIGHTS, description="flights: real flights of 2013; synthetic: seeded events, for volume")
    records: int = Field(20_000, ge=1_000, le=10_000_000, description="How many records are sent")
    trace: bool = Field(False, description="Read the job's messages, and say in which windows of its commit protocol it was killed")
    seed: int | None = Field(
        None, ge=0, le=MAX_SEED, description="Makes the schedule and the workload; drawn when empty, a preset has its own"
    )

    @model_validator(mode="after")
    def _preset_or_fields(self) -> Self:
        """A form sends all of its fields: what was left alone cannot be told from what was set to the same."""
        changed = [name for name, field in type(self).model_fields.items() if getattr(self, name) != field.default]
        against = [name for name in changed if name not in ("preset", "seed")]
        if self.preset is not None and against:
            conflicts = ", ".join(f"{name} {shown(str(getattr(self, name)))}" for name in against)
            raise ValueError(
                f"preset: {self.preset} says what is run, but {conflicts} was given too: empty `preset`, or leave the rest as it was"
            )
        if self.job is not None and "strategy" in changed:
            raise ValueError(
                f"job: {self.job} says what is run, but strategy {shown(self.strategy)} was given too: leave one of them as it was"
            )
        return self

    def experiment(self) -> Experiment:
        """Raises pydantic's ValidationError when the fields do not fit each other, BadInput when the preset cannot be read."""
        if self.preset is not None:
            return load(PRESETS[self.preset]).with_seed(self.seed)
        faults = [] if self.fault == "none" else [FaultSpec(fault=self.fault)]
        tested = self.strategy if self.job is None else Path(self.job).stem
        fields: dict[str, Any] = {
            "name": _name(f"{tested}-{self.fault}"),
            **({"strategy": self.strategy} if self.job is None else {"job": self.job}),
            "workload": Workload(source=self.workload, records=self.records),
            "faults": faults,
            "trace": self.trace or None,
            "brokers": max([1, *(FAULTS[spec.fault].least_brokers for spec in faults)]),
        }
        experiment = Experiment(**fields) if self.seed is None else Experiment(**fields, seed=self.seed)
        expect = [anomaly for spec in faults for anomaly in FAULTS[spec.fault].provokes(experiment.profile, spec.parameters)]
        return Experiment.model_validate({**experiment.model_dump(), "expect": expect})


def _name(text: str) -> str:
    """A text as the name of an experiment."""
    return re.sub(r"[^a-z0-9-]+", "-", text.lower()).strip("-")[:MOST_LETTERS]
