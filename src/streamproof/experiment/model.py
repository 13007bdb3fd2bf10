"""The validated model of an experiment: what ``FILE.yaml`` holds, what Airflow's form fills in.

Everything is checked here, before anything is started or broken. Importing this module imports neither Spark nor Kafka.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import yaml
from pydantic import BaseModel, BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from streamproof import registry, settings
from streamproof.engines.spark.job import OnLostDecision
from streamproof.engines.spark.registry import PIPELINES, STRATEGIES
from streamproof.engines.spark.spec import SparkSpec
from streamproof.evidence.locations import Kind
from streamproof.experiment import overlap
from streamproof.experiment.reading import NOT_YAML, load_as, parsed_yaml
from streamproof.experiment.room import Room
from streamproof.faults import FAULTS
from streamproof.jobs import windows
from streamproof.jobs.engine import JobSpec
from streamproof.jobs.failpoint import Site
from streamproof.jobs.profile import JobProfile, Role
from streamproof.load.spec import Source, Stateful, Strict, Workload
from streamproof.shown import shown
from streamproof.sinks.outputs import SINKS
from streamproof.testbed.external import External
from streamproof.verdict.anomaly import RESULT_KINDS, Anomaly
from streamproof.verdict.guarantee import Guarantee, Promise, forbidden

TESTBEDS = ("embedded", "containers", "external")
if TYPE_CHECKING:
    from streamproof.verdict.stateful.reference import ReferenceModel

MAX_SEED = 2**31 - 1
MAX_FAULTS = 20
MOST_QUIET_SHARE, MOST_QUIET_S = 0.5, 60.0
BATCHES = 12
MINUTE_MS = 60_000
MOST_RECOVERY_S = 86_400.0
LEAST_BATCH = 10
RANDOM_BATCHES = 8


def one_of(kind: str, names: tuple[str, ...]) -> Any:
    def check(value: Any) -> Any:
        if value not in names:
            raise ValueError(f"there is no {kind} {shown(value)}; there are: {', '.join(names)}")
        return value

    return BeforeValidator(check)


StrategyName = Annotated[str, one_of("strategy", tuple(STRATEGIES)), Field(json_schema_extra={"enum": list(STRATEGIES)})]
FaultName = Annotated[str, one_of("fault", tuple(FAULTS)), Field(json_schema_extra={"enum": list(FAULTS)})]
PipelineName = Annotated[str, one_of("pipeline", tuple(PIPELINES)), Field(json_schema_extra={"enum": list(PIPELINES)})]


TestbedName = Annotated[str, one_of("testbed", TESTBEDS), Field(json_schema_extra={"enum": list(TESTBEDS)})]


class Phase(StrEnum):
    """When faults may be injected. ``start``: before the job has committed anything. ``impact``: the workload is held a little ahead of the
    job. ``recovery``: the workload is sent to its end at once, and the job works off the backlog."""

    START = "start"
    IMPACT = "impact"
    RECOVERY = "recovery"


class FaultSpec(Strict):
    """One planned fault and what triggers it: ``at``, ``batch``, ``step``, ``window``, ``overlaps``, or a share drawn from the seed."""

    fault: FaultName = Field(description="Its name; `streamproof faults` lists them")
    at: float | None = Field(None, ge=0.05, le=0.9, description="Inject it when this share of the records is committed")
    batch: int | None = Field(None, ge=1, description="Inject it when this many micro-batches are committed")
    step: str | None = Field(
        None,
        description="Inject it when the job reaches this step of its commit protocol, after the fault before this one, and hold it there",
    )
    window: str | None = Field(
        None,
        description="Inject it between two steps of the job as seen from outside, after the fault before this one, and hold the job there "
        "where a message is the boundary: `COMMIT orders > OffsetCommit`; several with ` or ` between them: the one to which it comes "
        "first; or `any`: drawn from those that the job has passed so far",
    )
    overlaps: bool = Field(False, description="Inject it as soon as the fault before this one is injected, and while that lasts")
    phase: Phase = Field(
        Phase.IMPACT,
        description="impact; start: before the job has committed anything; recovery: as that phase begins (or at a `step` then). What "
        "overlaps is where the first one is",
    )
    parameters: dict[str, Any] = Field(default_factory=dict, description="The fault's own parameters; `streamproof faults` lists them")

    @model_validator(mode="after")
    def _one_trigger(self) -> Self:
        triggers = [f"{name}: {value}" for name in ("at", "batch", "step", "window") if (value := getattr(self, name)) is not None]
        if len(triggers) > 1:
            raise ValueError(f"{self.fault} has {len(triggers)} triggers, {' and '.join(triggers)}: give one of them, or none")
        if self.overlaps and (self.at is not None or self.batch is not None or self.window is not None):
            raise ValueError(f"{self.fault} overlaps: it is injected as soon as the fault before it is; leave `{triggers[0]}` out")
        if self.phase is Phase.RECOVERY and (self.at is not None or self.batch is not None):
            raise ValueError(
                f"{self.fault} is injected as the recovery phase begins, or at a `step` or in a `window` then; leave `{triggers[0]}` out"
            )
        if self.phase is Phase.START and triggers:
            raise ValueError(f"{self.fault} is injected before the job has committed anything; leave `{triggers[0]}` out")
        return self

    @field_validator("window")
    @classmethod
    def _named(cls, window: str | None) -> str | None:
        return window if window == windows.ANY else windows.named(window)

    @field_validator("parameters")
    @classmethod
    def _parameters_fit(cls, parameters: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        fault = info.data.get("fault")  # not there when it was refused itself
        if fault is not None:
            FAULTS[fault].parameters_model.model_validate(parameters)
        return parameters


def _quiet(value: Any) -> Any:
    if isinstance(value, str):
        if re.fullmatch(r"\d+(\.\d+)?s", value) is None or not 0 < float(value[:-1]) <= MOST_QUIET_S:
            raise ValueError(f"expected a share of the records, or a time of at most {MOST_QUIET_S:g}s as in '5s', came {shown(value)}")
    elif isinstance(value, int | float) and not 0 <= value <= MOST_QUIET_SHARE:
        raise ValueError(f"expected a share of at most {MOST_QUIET_SHARE:g} of the records, or a time as in '5s', came {shown(value)}")
    return value


Quiet = Annotated[float | str, BeforeValidator(_quiet)]


class Random(Strict):
    """Faults that are drawn from the experiment's seed: which, in which order, when, and with which parameters."""

    faults: list[FaultName] | None = Field(None, min_length=1, description="Of these; of all that can be injected into the job when absent")
    count: int = Field(6, ge=1, le=12, description="How many")
    quiet: Quiet = Field(0.02, description="How much passes without a fault between two: a share of the records, or a time as in 5s")
    overlaps: bool = Field(False, description="Inject some while a slow link lasts")


def _of_project(name: str) -> Path:
    """A file by its name, from the working folder or from the project's."""
    here = Path(name)
    return here if here.exists() else settings.project() / name


def _read(value: Any) -> Any:
    """A job, an external Kafka, or a suite may be named by its file."""
    if not isinstance(value, str):
        return value
    try:
        return parsed_yaml(_of_project(value).read_text())
    except (OSError, UnicodeDecodeError, *NOT_YAML) as error:
        raise ValueError(f"{value} cannot be read: {error}") from error


class Expectation(Strict):
    """One expectation of a suite, as Great Expectations writes it down."""

    type: str = Field(pattern=r"^[a-z_]+$", description="Great Expectations' name of it")
    kwargs: dict[str, Any] = Field(default_factory=dict, description="Its arguments")
    id: str | None = None
    description: str | None = None
    severity: Literal["critical", "warning", "info"] | None = None
    notes: Any = None
    meta: dict[str, Any] | None = None
    rendered_content: Any = None


class Suite(Strict):
    """A user's own expectations on the columns of what is delivered: a suite in Great Expectations' own format."""

    name: str = Field("suite", min_length=1, max_length=60)
    expectations: list[Expectation] = Field(min_length=1)
    id: str | None = None
    notes: Any = None
    meta: dict[str, Any] | None = None
    suite_parameters: dict[str, Any] | None = None

    def document(self) -> dict[str, Any]:
        """What of it is evaluated."""
        kept = {"type", "kwargs", "description", "severity", "notes"}
        return {
            "name": self.name,
            "expectations": [expectation.model_dump(include=kept, exclude_none=True) for expectation in self.expectations],
        }


def _seconds(value: Any) -> Any:
    if value is None or (isinstance(value, str) and re.fullmatch(r"\d+(\.\d+)?s", value) and 0 < float(value[:-1]) <= MOST_RECOVERY_S):
        return value
    raise ValueError(f"expected a time of at most {MOST_RECOVERY_S:g}s as in '60s', came {shown(value)}")


class Experiment(Strict):
    """A streaming job, a workload, and the faults it has to survive.

    The job is one of the project's own on Spark, ``pipeline`` delivered by ``strategy``, or any other, described in ``job``.
    """

    name: str = Field("experiment", pattern=r"^[a-z0-9][a-z0-9_-]{0,59}$", description="Lower-case letters, digits, - and _")
    pipeline: PipelineName = Field("kafka_to_kafka", description="What a built-in Spark job computes")
    strategy: StrategyName | None = Field(None, description="How a built-in Spark job commits its output and its offsets")
    job: Annotated[dict[str, Any] | None, BeforeValidator(_read)] = Field(
        None, description="Any other job: `engine`, and what that engine asks for; or the name of the YAML file that says so"
    )
    testbed: TestbedName = Field(
        "embedded",
        description="embedded: where the run is, one machine or the stack of docker-compose.yml; containers: only in that stack; external: "
        "with servers that run elsewhere",
    )
    brokers: Literal[1, 3] = Field(1, description="Brokers of Kafka; three replicate everything, and go on when one of them dies")
    external: Annotated[External, BeforeValidator(_read)] | None = Field(
        None, description="The servers that run elsewhere, and what of them may be broken; or the name of the YAML file that says so"
    )
    guarantee: Guarantee | None = Field(None, description="What is to hold; the strategy's own promise when absent")
    also_promised: frozenset[Promise] | None = Field(
        None, description="What is to hold beside it: ordered, atomic, monotonic; what the strategy promises when absent, nothing with []"
    )
    workload: Workload = Field(Workload(), description="What is sent to the input topic")
    stateful: Stateful = Field(default=Stateful(), description="For a stateful pipeline: windows, watermark, and how late events come")
    suite: Annotated[Suite, BeforeValidator(_read)] | None = Field(
        None, description="Your own expectations on the delivered columns: a Great Expectations suite, or the name of its YAML or JSON file"
    )
    recover_within: Annotated[str | None, BeforeValidator(_seconds)] = Field(
        None, description="After each fault the backlog must be gone within this time, as in 60s; the run is FAILED if not"
    )
    faults: list[FaultSpec] = Field(default_factory=list, max_length=MAX_FAULTS, description="What is injected, one after the other")
    random: Random | None = Field(None, description="Draw the faults from the seed, instead of `faults`")
    quiet: Quiet = Field(0.0, description="How much passes without a fault between two: a share of the records, or a time as in 5s")
    expect: list[Anomaly] = Field(default_factory=list, description="Anomalies that must be seen: the experiment is a negative control")
    seed: int = Field(
        default_factory=lambda: secrets.randbelow(MAX_SEED), ge=0, le=MAX_SEED, description="Of all that is random; drawn when absent"
    )
    batch_records: int | None = Field(
        None, ge=LEAST_BATCH, description="The most records of a micro-batch; a twelfth of the workload when absent, less with `random`"
    )
    transaction_timeout_s: int = Field(60, ge=5, le=900, description="How long a prepared transaction may wait for its decision")
    on_lost_decision: OnLostDecision = Field(
        OnLostDecision.STOP,
        description="What two_phase_commit does about a transaction that it decided to commit and that the broker has aborted: "
        "stop, at each start anew, or go_on without its records",
    )
    fail_on_data_loss: bool = Field(
        True,
        description="Whether a built-in Spark job ends when records are gone from its input that it has not read (`failOnDataLoss`), or "
        "goes on without a word",
    )
    trace: bool | None = Field(
        None,
        description="Read every message between the job and its servers, keep those that matter in `trace/messages.jsonl`, and say which "
        "windows were hit. When absent this is done for a job of your own, as far as Kafka was started here",
    )
    timeout_s: int = Field(240, ge=30, le=86_400, description="The run is given up after this time")

    @field_validator("job")
    @classmethod
    def _job_fits(cls, job: dict[str, Any] | None) -> dict[str, Any] | None:
        """Complete, as its engine validates it."""
        if job is None:
            return None
        described = {name: engine for name, engine in registry.registered("engines").items() if engine.spec_type is not None}
        engine = described.get(str(job.get("engine")))
        if engine is None:
            raise ValueError(f"engine: there is no engine {shown(job.get('engine'))} for a job; there are: {', '.join(described)}")
        spec: BaseModel = engine.spec_type.model_validate(job)
        return spec.model_dump(mode="json", exclude_none=True, by_alias=True)

    @model_validator(mode="after")
    def _sensible(self) -> Self:
        if (self.strategy is None) == (self.job is None):
            raise ValueError("strategy: give the `strategy` of a built-in Spark job, or describe your own in `job`: one of the two")
        of_spark = self.pipeline != "kafka_to_kafka" or self.on_lost_decision is not OnLostDecision.STOP or not self.fail_on_data_loss
        if self.job is not None and of_spark:
            raise ValueError("job: `pipeline`, `on_lost_decision` and `fail_on_data_loss` are for built-in Spark jobs; leave them out")
        contradicted = [anomaly for anomaly in self.expect if anomaly in self.forbidden]
        if contradicted:
            raise ValueError(self._contradicted(contradicted))
        self._check_versions()
        if self.profile.expected is not None and (unjudged := {Anomaly.TORN, Anomaly.REORDERED}.intersection(self.expect)):
            raise ValueError(f"expect: {', '.join(sorted(unjudged))} is judged of jobs that deliver each record once")
        if (
            self.workload.file is not None
            and self.workload.file.avro is not None
            and self.profile.reads.kind not in (Kind.HEADER, Kind.KEY)
        ):
            raise ValueError(
                "workload: file.avro: an Avro value has no place for the identity that its schema does not know; "
                "say in `reads: {kafka: {identity: …}}` that the job reads it from a `header`, or as the `key`"
            )
        if Anomaly.OFFSET_AHEAD in self.expect and not self.profile.knows_offsets:
            raise ValueError(f"expect: {Anomaly.OFFSET_AHEAD} cannot be seen where progress is read from the output; leave it out")
        if self.on_lost_decision is not OnLostDecision.STOP and self.profile.decided_transaction_step is None:
            raise ValueError(f"on_lost_decision: strategy {self.strategy!r} decides nothing about Kafka transactions; leave it out")
        self._check_pipeline()
        self._check_testbed()
        if self.random is not None and self.faults:
            raise ValueError("faults: with `random` they are drawn; leave one of the two out")
        if self.random is not None and self.quiet:
            raise ValueError("quiet: with `random` it is given there, as `random: {quiet: ...}`")
        for name in self.random.faults or () if self.random is not None else ():
            self.check_fault(name, {})
        for spec in self.faults:
            self.check_fault(spec.fault, spec.parameters)
            self._check_phase(spec)
            self._check_step(spec)
            self._check_window(spec)
        for group in overlap.groups(self.faults):
            self._check_overlaps(group)
        return self

    def _contradicted(self, anomalies: Sequence[Anomaly]) -> str:
        names = ", ".join(anomalies)
        broken = sorted(promise for promise in self.promises if promise.forbidden in anomalies)
        if broken and all(anomaly not in self.promised.forbidden for anomaly in anomalies):
            return f"expect: {names} is forbidden by what is promised beside it: {', '.join(broken)}; leave that out of `also_promised`"
        return f"expect: {names} is forbidden by {self.promised}; set `guarantee` to what the strategy can keep"

    def _check_versions(self) -> None:
        if SINKS[self.profile.sink].keeps_versions:
            return
        if Promise.MONOTONIC in self.promises:
            raise ValueError(f"also_promised: monotonic: the output of {self.label} keeps no versions; leave it out")
        if Anomaly.VANISHED in self.expect:
            raise ValueError(f"expect: {Anomaly.VANISHED} cannot be seen: the output of {self.label} keeps no versions; leave it out")

    def _check_pipeline(self) -> None:
        pipeline = PIPELINES[self.pipeline]
        foreign = [anomaly for anomaly in self.expect if (anomaly in RESULT_KINDS) != self.of_results]
        if foreign:
            about = "records, which results are not" if self.of_results else "results, which only a stateful pipeline has"
            raise ValueError(f"expect: {', '.join(foreign)} is about {about}")
        if not pipeline.stateful and self.stateful != Stateful():
            stateful = ", ".join(name for name, declared in PIPELINES.items() if declared.stateful)
            raise ValueError(f"stateful: pipeline {self.pipeline!r} keeps no state; leave it out, or choose one of: {stateful}")
        if pipeline.stateful and self.strategy is not None and not STRATEGIES[self.strategy].takes_results:
            fitting = ", ".join(name for name, strategy in STRATEGIES.items() if strategy.takes_results)
            raise ValueError(
                f"strategy: {self.strategy} cannot deliver what pipeline {self.pipeline!r} computes, it needs to know the source offset of "
                f"each row; choose one of: {fitting}"
            )
        if pipeline.stateful and (self.workload.source is not Source.FLIGHTS or self.workload.file is not None):
            raise ValueError(f"workload: pipeline {self.pipeline!r} reads flights; set `source: flights`")

    def _check_testbed(self) -> None:
        if (self.testbed == "external") != (self.external is not None):
            raise ValueError("testbed: `testbed: external` and the addresses in `external` belong together")
        if self.external is not None and self.external.roles and self.job is None:
            raise ValueError("external: `roles` is for a `job` of your own: those of a built-in job are processes of this machine")
        if self.external is not None and self.external.kafka is not None and self.brokers != 1:
            raise ValueError("brokers: how many an external Kafka has is not for the experiment to say")

    def check_fault(self, name: str, parameters: dict[str, Any]) -> None:
        """Raises ValueError when that fault cannot be injected into this job, or not on this testbed."""
        fault = FAULTS[name]
        fault.check(self.profile, parameters)
        if self.external is not None:
            refusal = self.external.refusal(fault.outside(fault.parameters_model.model_validate(parameters)))
            if refusal is not None:
                raise ValueError(f"{name}: {refusal}")
            self._check_here(name, parameters, self.external)
        if fault.least_brokers > self.brokers:
            raise ValueError(
                f"{name}: it needs a Kafka of {fault.least_brokers} brokers, the experiment has {self.brokers}: "
                f"set `brokers: {fault.least_brokers}`"
            )

    def _check_here(self, name: str, parameters: dict[str, Any], external: External) -> None:
        """Raises ValueError when that fault needs processes on this machine that are found by a template."""
        fault = FAULTS[name]
        elsewhere = {role.value for role in external.roles}
        wanting = sorted(role for role in fault.here_only(fault.parameters_model.model_validate(parameters)) if role.value in elsewhere)
        if wanting:
            raise ValueError(
                f"{name}: it needs the {' and the '.join(wanting)} on this machine, and `external.roles` finds them elsewhere, where it "
                "can only kill: use kill_driver, or kill_process without `gracefully` and `loses`"
            )

    def _check_overlaps(self, group: list[FaultSpec]) -> None:
        first = group[0]
        if first.overlaps:
            raise ValueError(f"faults: {first.fault} is the first, there is none before it that it could overlap")
        if (reason := overlap.conflict(group)) is not None:
            raise ValueError(f"faults: {reason}")
        if any(spec.phase is not Phase.IMPACT and spec.phase is not first.phase for spec in group):
            raise ValueError(f"faults: what overlaps {first.fault} is injected in its phase, {first.phase}")

    def _check_phase(self, spec: FaultSpec) -> None:
        if spec.phase is Phase.START and not FAULTS[spec.fault].from_the_start:
            fitting = ", ".join(name for name, fault in FAULTS.items() if fault.from_the_start)
            raise ValueError(f"{spec.fault}: it needs a job that is at work; in the phase `start` can be: {fitting}")

    def _check_step(self, spec: FaultSpec) -> None:
        if spec.step is None:
            return
        sites = FAULTS[spec.fault].sites
        if not sites and "step" not in FAULTS[spec.fault].parameters_model.model_fields:
            raise ValueError(f"{spec.fault} chooses its moment by itself: leave `step` out")
        if not sites:
            raise ValueError(f"{spec.fault} waits for a step by itself: name it in its parameters, `parameters: {{step: {spec.step}}}`")
        points = {point.name: point for point in self.profile.failpoints}
        fitting = ", ".join(name for name, point in points.items() if point.at in sites) or "none"
        if spec.step not in points:
            raise ValueError(f"{spec.fault}: a job with {self.label!r} has no step {shown(spec.step)}; it can wait for: {fitting}")
        site = points[spec.step].at
        if site == Site.RECOVERY:
            raise ValueError(f"{spec.fault}: {spec.step} is passed while recovering from a crash only; it can wait for: {fitting}")
        if site not in sites:
            raise ValueError(
                f"{spec.fault} cannot be injected while the job is held at {spec.step} (a {site} step); it can wait for: {fitting}"
            )

    def _check_window(self, spec: FaultSpec) -> None:
        if spec.window is None:
            return
        if "window" in FAULTS[spec.fault].parameters_model.model_fields:
            raise ValueError(
                f"{spec.fault} is aimed at windows by itself: name it in its parameters, `parameters: {{window: {spec.window}}}`"
            )
        if Site.DRIVER not in FAULTS[spec.fault].sites:
            raise ValueError(f"{spec.fault} chooses its moment by itself: leave `window` out")
        if self.external is not None and (refusal := self.external.refusal(None)) is not None:
            raise ValueError(f"{spec.fault}: a window is found by the messages of the job, which are not read here: {refusal}")

    @property
    def traced(self) -> bool:
        """Whether the messages of the run are read."""
        return self.trace if self.trace is not None else self.job is not None and self.external is None

    @property
    def spec(self) -> JobSpec:
        """The job."""
        if self.job is not None:
            spec: JobSpec = registry.registered("engines")[self.job["engine"]].spec_type.model_validate(self.job)
            return spec
        assert self.strategy is not None, "validated"
        faults = [spec.fault for spec in self.faults] if self.random is None else self.random.faults or []
        return SparkSpec(
            self.strategy,
            self.pipeline,
            self.options,
            self.on_lost_decision,
            self.stateful.state_store,
            self.fail_on_data_loss,
            half=any(FAULTS[name].starts_another for name in faults),
        )

    @property
    def profile(self) -> JobProfile:
        """What is known of the job. A template adds a role that its engine does not see."""
        known = self.spec.profile
        roles = frozenset(Role(role.value) for role in self.external.roles) if self.external is not None else frozenset[Role]()
        return replace(known, roles=known.roles | roles) if roles - known.roles else known

    @property
    def label(self) -> str:
        """What the job is called in messages, the history and the matrix: its strategy, or its own name."""
        return self.profile.name

    @property
    def promised(self) -> Guarantee:
        return self.guarantee or self.profile.guarantee

    @property
    def promises(self) -> frozenset[Promise]:
        """What the run is held to beside the guarantee: what the strategy promises, unless the experiment says otherwise."""
        return self.profile.promises if self.also_promised is None else self.also_promised

    @property
    def forbidden(self) -> frozenset[Anomaly]:
        return forbidden(self.promised, self.promises, self.of_results)

    @property
    def of_results(self) -> bool:
        """Whether the job delivers results that it computes, instead of records."""
        return PIPELINES[self.pipeline].stateful or self.profile.results is not None

    @property
    def reference_model(self) -> ReferenceModel | None:
        """What a stateful pipeline is to compute; None for one without state."""
        return PIPELINES[self.pipeline].reference(self.options, self.stateful.delay_min * MINUTE_MS)

    @property
    def keeps_values(self) -> bool:
        """Whether the run is judged by what the delivered records say, too."""
        return self.suite is not None or self.of_results

    @property
    def recover_within_s(self) -> float | None:
        return None if self.recover_within is None else float(self.recover_within[:-1])

    @property
    def options(self) -> dict[str, int]:
        """What the pipeline is told."""
        if not PIPELINES[self.pipeline].stateful:
            return {}
        stateful = self.stateful
        delay_min = stateful.delay_min if stateful.job_delay_min is None else stateful.job_delay_min
        minutes = {"length_ms": stateful.window_min, "slide_ms": stateful.slide, "delay_ms": delay_min}
        return {name: value * MINUTE_MS for name, value in minutes.items()}

    @property
    def micro_batch(self) -> int:
        batches = BATCHES if self.random is None else BATCHES + RANDOM_BATCHES * self.random.count
        return self.batch_records or max(LEAST_BATCH, self.workload.records // batches)

    @property
    def quiet_between(self) -> float | str:
        return self.quiet if self.random is None else self.random.quiet

    @property
    def batches(self) -> int:
        """How many micro-batches its workload makes."""
        return self.workload.records // self.micro_batch

    @property
    def room(self) -> Room:
        """Its workload as faults see it."""
        return Room(self.workload.records, self.micro_batch, self.quiet_between)

    def with_seed(self, seed: int | None) -> Experiment:
        return self if seed is None else Experiment.model_validate({**self.model_dump(), "seed": seed})

    def without_faults(self, name: str, most_records: int, **changed: Any) -> Experiment:
        """The same job on a workload of at most so many records, with no faults and nothing that is asked of them. ``changed`` are fields
        of it."""
        records = min(most_records, self.workload.records)
        nothing: dict[str, Any] = {"faults": [], "random": None, "quiet": 0.0, "expect": [], "recover_within": None}
        workload = {**self.workload.model_dump(), "records": records, "rate_per_s": 0}
        return Experiment.model_validate({**self.model_dump(by_alias=True), **nothing, "name": name, "workload": workload, **changed})

    def to_yaml(self) -> str:
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False)


def load(path: Path) -> Experiment:
    """Read an experiment from a YAML file. Raises BadInput naming the file, the field, what was expected and what came."""
    return load_as(path, Experiment, "at least `strategy`", "the experiment")
