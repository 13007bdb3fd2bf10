"""The validated model of an experiment: what ``FILE.yaml`` holds, what Airflow's form fills in.

Everything is checked here, before anything is started or broken. Importing this module imports neither Spark nor Kafka.
"""

from __future__ import annotations

import secrets
from collections.abc import Hashable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator

from chaos.faults import FAULTS
from chaos.shown import named, shown
from delivery.anomaly import Anomaly
from delivery.guarantee import Guarantee
from pipelines.strategies import STRATEGIES
from testbed.external import External

PIPELINES = ("kafka_to_kafka",)
TESTBEDS = ("embedded", "external")
Model = TypeVar("Model", bound=BaseModel)
MAX_SEED = 2**31 - 1


class BadInput(Exception):
    """Something the user gave cannot be used. The message names the thing, what was expected, what came, and what to do."""


class Source(StrEnum):
    """``flights``: real flights of 2013 as JSON events (at most 336,776); ``synthetic``: seeded events, for volume."""

    FLIGHTS = "flights"
    SYNTHETIC = "synthetic"


def _known(kind: str, names: tuple[str, ...]) -> Any:
    def check(value: Any) -> Any:
        if value not in names:
            raise ValueError(f"there is no {kind} {shown(value)}; there are: {', '.join(names)}")
        return value

    return BeforeValidator(check)


StrategyName = Annotated[str, _known("strategy", tuple(STRATEGIES)), Field(json_schema_extra={"enum": list(STRATEGIES)})]
FaultName = Annotated[str, _known("fault", tuple(FAULTS)), Field(json_schema_extra={"enum": list(FAULTS)})]
PipelineName = Annotated[str, _known("pipeline", PIPELINES), Field(json_schema_extra={"enum": list(PIPELINES)})]


TestbedName = Annotated[str, _known("testbed", TESTBEDS), Field(json_schema_extra={"enum": list(TESTBEDS)})]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_enum_values=False)


class Workload(_Model):
    """What is sent: ``records`` in all, over ``partitions``, at most ``rate_per_s`` (0: as fast as the phases allow)."""

    source: Source = Source.FLIGHTS
    records: int = Field(20_000, ge=100, le=50_000_000, description="How many records are sent")
    partitions: int = Field(4, ge=1, le=64, description="Partitions of the input topic at the start, and of the output topic")
    rate_per_s: int = Field(0, ge=0, le=10_000_000, description="The most records sent a second, 0 for no bound")

    @model_validator(mode="after")
    def _enough_flights(self) -> Self:
        if self.source is Source.FLIGHTS and self.records > 336_776:
            raise ValueError(f"the flights workload has 336776 records, {self.records} were asked for: use source 'synthetic'")
        return self


class FaultSpec(_Model):
    """One planned fault: ``at`` is the share of all records that must be committed before it strikes."""

    fault: FaultName
    at: float | None = Field(
        None, ge=0.05, le=0.9, description="Strike when this share of the records is committed; drawn from the seed when absent"
    )
    parameters: dict[str, Any] = Field(default_factory=dict, description="The fault's own parameters; `streamproof faults` lists them")

    @field_validator("parameters")
    @classmethod
    def _parameters_fit(cls, parameters: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        fault = info.data.get("fault")  # not there when it was refused itself
        if fault is not None:
            FAULTS[fault].parameters_model.model_validate(parameters)
        return parameters


def _read(value: Any) -> Any:
    """An external Kafka may be named by its file."""
    if not isinstance(value, str):
        return value
    try:
        return yaml.load(Path(value).read_text(), _Loader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, *_CHOKES) as error:
        raise ValueError(f"{value} cannot be read: {error}") from error


class Experiment(_Model):
    """A streaming job, a workload, and the faults it has to survive."""

    name: str = Field("experiment", pattern=r"^[a-z0-9][a-z0-9_-]{0,59}$", description="Lower-case letters, digits, - and _")
    pipeline: PipelineName = "kafka_to_kafka"
    strategy: StrategyName
    testbed: TestbedName = "embedded"
    brokers: Literal[1, 3] = Field(1, description="Brokers of Kafka; three replicate everything, and go on when one of them dies")
    external: Annotated[External, BeforeValidator(_read)] | None = Field(
        None, description="The external Kafka, and what of it may be broken; or the name of the YAML file that says so"
    )
    guarantee: Guarantee | None = Field(None, description="What is to hold; the strategy's own promise when absent")
    workload: Workload = Workload()
    faults: list[FaultSpec] = Field(default_factory=list, max_length=20)
    expect: list[Anomaly] = Field(default_factory=list, description="Anomalies that must be seen: the experiment is a negative control")
    seed: int = Field(default_factory=lambda: secrets.randbelow(MAX_SEED), ge=0, le=MAX_SEED)
    batch_records: int | None = Field(None, ge=10, description="The most records of a micro-batch; a twelfth of the workload when absent")
    transaction_timeout_s: int = Field(60, ge=5, le=900, description="How long a prepared transaction may wait for its decision")
    timeout_s: int = Field(240, ge=30, le=86_400, description="The run is given up after this time")

    @model_validator(mode="after")
    def _sensible(self) -> Self:
        forbidden = [anomaly for anomaly in self.expect if anomaly in self.promised.forbidden]
        if forbidden:
            raise ValueError(
                f"expect: {', '.join(forbidden)} is forbidden by {self.promised}; set `guarantee` to what the strategy can keep"
            )
        self._check_testbed()
        for spec in self.faults:
            FAULTS[spec.fault].check(self.strategy, spec.parameters)
            if (refusal := self.refusal(spec)) is not None:
                raise ValueError(f"{spec.fault}: {refusal}")
        return self

    def _check_testbed(self) -> None:
        if (self.testbed == "external") != (self.external is not None):
            raise ValueError("testbed: `testbed: external` and the addresses in `external` belong together")
        if self.external is not None and self.brokers != 1:
            raise ValueError("brokers: how many an external Kafka has is not for the experiment to say")

    def refusal(self, spec: FaultSpec) -> str | None:
        """Why a fault cannot strike the Kafka of this experiment, None when it can."""
        fault = FAULTS[spec.fault]
        if self.external is not None:
            reason = self.external.refusal(fault.outside(fault.parameters_model.model_validate(spec.parameters)))
            if reason is not None:
                return reason
        if fault.least_brokers > self.brokers:
            needed = fault.least_brokers
            return f"it needs a Kafka of {needed} brokers, the experiment has {self.brokers}: set `brokers: {needed}`"
        return None

    @property
    def promised(self) -> Guarantee:
        return self.guarantee or STRATEGIES[self.strategy].guarantee

    @property
    def micro_batch(self) -> int:
        return self.batch_records or self.workload.records // 12

    def with_seed(self, seed: int | None) -> Experiment:
        return self if seed is None else Experiment.model_validate({**self.model_dump(), "seed": seed})

    def to_yaml(self) -> str:
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False)


class Form(_Model):
    """One experiment as a form: what Airflow shows and the API takes."""

    strategy: StrategyName = Field("two_phase_commit", description="How the job commits its output and its offsets")
    fault: FaultName | Literal["none"] = Field(
        "kill_executor", description="What is broken while it runs", json_schema_extra={"enum": [*FAULTS, "none"]}
    )
    workload: Source = Field(Source.FLIGHTS, description="flights: real flights of 2013; synthetic: seeded events, for volume")
    records: int = Field(20_000, ge=1_000, le=10_000_000, description="How many records are sent")
    seed: int | None = Field(None, ge=0, le=MAX_SEED, description="Makes the schedule and the workload; drawn when empty")

    def experiment(self) -> Experiment:
        """Raises pydantic's ValidationError when the fields do not fit each other."""
        faults = [] if self.fault == "none" else [FaultSpec(fault=self.fault)]
        fields: dict[str, Any] = {
            "name": f"{self.strategy}-{self.fault}".replace("_", "-"),
            "strategy": self.strategy,
            "workload": Workload(source=self.workload, records=self.records),
            "faults": faults,
            "brokers": max([1, *(FAULTS[spec.fault].least_brokers for spec in faults)]),
        }
        found = Experiment(**fields) if self.seed is None else Experiment(**fields, seed=self.seed)
        expect = [anomaly for spec in faults for anomaly in FAULTS[spec.fault].provokes(self.strategy, spec.parameters)]
        return Experiment.model_validate({**found.model_dump(), "expect": expect})


class _TwiceGiven(yaml.YAMLError):
    """A mapping gives one key twice."""


class _Loader(yaml.SafeLoader):
    """Plain YAML, in which no key may be given twice: PyYAML lets the last one win without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        first: dict[Hashable, int] = {}
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                continue
            key = key_node.tag, key_node.value
            line = key_node.start_mark.line + 1
            if key in first:
                raise _TwiceGiven(f"line {line}: {named(key_node.value)} is given twice, first in line {first[key]}: remove one of them")
            first[key] = line
        return super().construct_mapping(node, deep)


# What PyYAML raises besides YAMLError: for dates and numbers that are none, for a tag that does not fit its value, for deep nesting.
_CHOKES = (ValueError, LookupError, AttributeError, TypeError, ArithmeticError, RecursionError)


def load(path: Path) -> Experiment:
    """Read an experiment from a YAML file. Raises BadInput naming the file, the field, what was expected and what came."""
    try:
        text = path.read_text()
    except FileNotFoundError as error:
        raise BadInput(f"{path}: no such file. The repository's experiments are in experiments/") from error
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be read: {error}") from error
    try:
        data = yaml.load(text, _Loader)
    except _TwiceGiven as error:
        raise BadInput(f"{path}: {error}") from None
    except yaml.YAMLError as error:
        raise BadInput(f"{path} is not YAML: {_problem(error)}") from error
    except _CHOKES as error:
        raise BadInput(f"{path} is not YAML that can be read: {type(error).__name__}: {named(str(error))}") from error
    if not isinstance(data, dict):
        raise BadInput(f"{path}: expected a mapping with at least `strategy`, came {type(data).__name__}")
    return parse(data, str(path), Experiment)


def _problem(error: yaml.YAMLError) -> str:
    """What PyYAML says, on one line."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"line {error.problem_mark.line + 1}: {error.problem or error.context}"
    return " ".join(str(error).split())


def parse(data: dict[str, Any], where: str, model: type[Model]) -> Model:
    """Validate ``data``. Raises BadInput with one line per problem."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise BadInput(explain(error, where)) from None


def explain(error: ValidationError, where: str) -> str:
    """Pydantic's findings as lines that a user can act on."""
    lines = []
    for problem in error.errors():
        field = ".".join(named(part) for part in problem["loc"]) or "the experiment"
        message = problem["msg"].removeprefix("Value error, ")
        came = "" if problem["type"] in ("missing", "value_error") else f", came {shown(problem['input'])}"
        lines.append(f"{where}: {field}: {message}{came}")
    return "\n".join(lines)
