"""The validated model of a matrix: strategies × faults × seeds, and how much time they may take. What a nightly run runs.

A scenario is one strategy, one fault and one seed, and is an experiment of its own. Which anomaly it must show follows from its fault.
Every scenario is made and planned here, so that a matrix that cannot be run is refused before its first scenario.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from streamproof.errors import BadInput
from streamproof.experiment.model import MAX_SEED, Experiment, FaultName, FaultSpec, StrategyName
from streamproof.experiment.reading import load_as
from streamproof.experiment.schedule import plan
from streamproof.faults import FAULTS
from streamproof.load.spec import Workload
from streamproof.shown import shown

CRON = re.compile(r"@(hourly|daily|midnight|weekly|monthly)|[0-9A-Za-z*/,#?-]+( [0-9A-Za-z*/,#?-]+){4}")
MAX_SCENARIOS = 500
NAME = 60


def _cron(value: Any) -> Any:
    if value is not None and (not isinstance(value, str) or CRON.fullmatch(value) is None):
        raise ValueError(f"expected five fields of cron as in '0 2 * * *', a word as @daily, or null, came {shown(value)}")
    return value


def _spec(value: Any) -> Any:
    """A fault with nothing to say about it may be given by its name."""
    return {"fault": value} if isinstance(value, str) else value


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Pair(_Model):
    """A strategy and a fault that are not to meet."""

    strategy: StrategyName
    fault: FaultName


class Quota(_Model):
    """How much time a nightly run may take."""

    scenario_s: int = Field(180, ge=30, le=86_400, description="A run is given up after this time")
    nightly_run_s: int = Field(
        14_400, ge=60, le=86_400, description="No scenario begins after this time; those left over are reported as not run"
    )


@dataclass(frozen=True)
class Scenario:
    """One run of a nightly run. ``number`` counts from 1, in the order in which they are run."""

    number: int
    experiment: Experiment

    @property
    def name(self) -> str:
        return f"{self.number:02d}-{self.experiment.name}-s{self.experiment.seed}"

    @property
    def fault(self) -> str:
        return self.experiment.faults[0].fault


class Matrix(_Model):
    """Strategies × faults × seeds, and the workload and the quotas that all scenarios share."""

    schedule: Annotated[str | None, BeforeValidator(_cron)] = Field(
        "0 2 * * *", description="When a nightly run begins: cron, in UTC; null: only when somebody triggers it"
    )
    strategies: list[StrategyName] = Field(min_length=1)
    faults: list[Annotated[FaultSpec, BeforeValidator(_spec)]] = Field(
        min_length=1, description="A fault's name, or as in an experiment with `parameters`, `at`, `batch` or `step`"
    )
    seeds: list[Annotated[int, Field(ge=0, le=MAX_SEED)]] = Field(default=[1], min_length=1)
    leave_out: list[Pair] = Field(default=[], description="Strategies and faults that are not to meet")
    workload: Workload = Workload(records=12_000)
    batch_records: int | None = Field(None, ge=10, description="As in an experiment")
    quota: Quota = Quota()

    @model_validator(mode="after")
    def _can_be_run(self) -> Self:
        for name, values in (("strategies", self.strategies), ("seeds", map(str, self.seeds))):
            twice = [value for value, count in Counter(values).items() if count > 1]
            if twice:
                raise ValueError(f"{name}: {', '.join(twice)} is given twice: what is run twice a nightly run shows nothing new")
        if not 0 < len(self.scenarios) <= MAX_SCENARIOS:
            raise ValueError(f"the matrix has {len(self.scenarios)} scenarios, expected 1 to {MAX_SCENARIOS}")
        return self

    @property
    def scenarios(self) -> list[Scenario]:
        """In the order of the file, but those that need another number of brokers last: Kafka is made anew for them once."""
        experiments = sorted(self._experiments(), key=lambda experiment: experiment.brokers)
        return [Scenario(number, experiment) for number, experiment in enumerate(experiments, 1)]

    def _experiments(self) -> Iterator[Experiment]:
        out = {(pair.strategy, pair.fault) for pair in self.leave_out}
        for spec in self.faults:
            for strategy in self.strategies:
                if (strategy, spec.fault) not in out:
                    for seed in self.seeds:
                        yield self._experiment(strategy, spec, seed)

    def _experiment(self, strategy: str, spec: FaultSpec, seed: int) -> Experiment:
        """Raises ValueError naming the scenario that cannot be."""
        try:
            experiment = Experiment(
                name=f"{strategy}-{spec.fault}".replace("_", "-")[:NAME],
                strategy=strategy,
                brokers=3 if FAULTS[spec.fault].least_brokers > 1 else 1,
                workload=self.workload,
                faults=[spec],
                seed=seed,
                batch_records=self.batch_records,
                timeout_s=self.quota.scenario_s,
            )
            provoked = FAULTS[spec.fault].provokes(experiment.profile, spec.parameters)
            experiment = Experiment.model_validate({**experiment.model_dump(), "expect": provoked})
            plan(experiment)
        except ValidationError as error:
            reasons = "; ".join(problem["msg"].removeprefix("Value error, ") for problem in error.errors())
            raise ValueError(f"{strategy} x {spec.fault}: {reasons}; name the two in `leave_out`, or mend the scenario") from None
        except BadInput as error:
            raise ValueError(f"{strategy} x {spec.fault}: {error}") from None
        return experiment


def load(path: Path) -> Matrix:
    """Read a matrix from a YAML file. Raises BadInput naming the file, the field, what was expected and what came."""
    return load_as(path, Matrix, "`strategies` and `faults`", "the matrix")
