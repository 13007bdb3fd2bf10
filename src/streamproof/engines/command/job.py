"""A job that is any command line, as an experiment describes it and as it is started."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from streamproof import settings
from streamproof.engines.command import described
from streamproof.engines.command.described import Delivers, Group, KafkaOutput, Progress, Reads, SparkCheckpoint
from streamproof.engines.command.placeholders import PLACEHOLDERS, SECRETS, only_placeholder, unknown
from streamproof.errors import BadInput
from streamproof.evidence.locations import Kind, Location
from streamproof.jobs.expected import ExpectedCounts
from streamproof.jobs.job import Job
from streamproof.jobs.profile import JobProfile, Role, Trait
from streamproof.jobs.results import Results
from streamproof.sinks.outputs import SINKS
from streamproof.testbed import install
from streamproof.testbed.credentials import names_a_secret
from streamproof.testbed.embedded import Testbed
from streamproof.verdict.guarantee import Guarantee, Promise

Argument = Annotated[str, Field(min_length=1)]


@dataclass(frozen=True, kw_only=True)
class CommandJob(Job):
    """``cwd`` is absolute. The consumer group by whose offsets its progress is read is ``group``, with the job's ``name`` when empty. With
    ``spark_checkpoint`` progress is read from that folder, with ``follows_output`` from what it delivers. ``interpreter`` is its own
    Python; empty is the one that runs streamproof. ``executors`` says whether its tasks run in executors of the testbed's Spark. So many
    ``instances`` run the command side by side."""

    command: list[str]
    cwd: str
    instances: int = 1
    env: dict[str, str] = field(default_factory=dict)
    interpreter: str = ""
    group: str = ""
    spark_checkpoint: str = ""
    follows_output: bool = False
    executors: bool = False

    @property
    def consumer_group(self) -> str:
        """The group that it reads as."""
        return self.group or self.name


class OwnJobSpec(BaseModel):
    """A job of a user's own as an experiment describes it, in ``job``: what is asked of it whichever engine runs it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    jars: ClassVar[Path | None] = None
    """A file in the format of ``testbed/jars.lock`` with what such a job runs on; None where it needs nothing of its own."""
    relies_on: ClassVar[frozenset[Trait]] = frozenset()
    """What such a job always relies on."""

    engine: str
    promises: Guarantee = Field(description="What the job promises of every record")
    also_promises: frozenset[Promise] | None = Field(
        None,
        description="What it promises beside that: ordered, atomic; monotonic of an output that keeps versions, where it is the default",
    )
    name: str | None = Field(None, pattern=r"^[a-z0-9][a-z0-9_-]{0,59}$", description="What it is called; its script's name when absent")
    cwd: str | None = Field(None, description="Its working folder, from the project's; the project's own when absent")
    env: dict[str, str] = Field(default_factory=dict, description="Variables of its own, with placeholders")
    interpreter: str | None = Field(None, description="Its own Python, or the folder of its virtual environment, from the project's folder")
    transactions: bool = Field(False, description="Whether it writes in Kafka transactions whose ids begin with STREAMPROOF_JOB")
    reads: Reads = Field(default_factory=Reads, description="What it reads")
    delivers: Delivers = Field(default_factory=lambda: Delivers(kafka=KafkaOutput()), description="Where it delivers")
    expected: ExpectedCounts | None = Field(None, description="How often it delivers each record: once when absent")
    results: Results | None = Field(None, description="What it computes, where it delivers results instead of records")
    progress: Progress = Field(
        "group", description="From what its progress is read: group, {group: NAME}, {spark_checkpoint: FOLDER}, or output"
    )

    @model_validator(mode="after")
    def _sensible(self) -> Self:
        self._check_env()
        for text in self.texts:
            if (name := unknown(text)) is not None:
                if name in SECRETS:
                    raise ValueError(
                        f"{{{name}}} can stand in the values of `env` only: everybody on the machine can read a command line. The variable "
                        f"STREAMPROOF_{name.upper()} holds it too, and the file {{kafka_properties}}"
                    )
                known = ", ".join(PLACEHOLDERS)
                raise ValueError(f"there is no placeholder {{{name}}}; there are: {known}. Write {{{{{name}}}}} for the braces themselves")
        self._check_promises()
        self._check_results()
        if self.progress == "output" and (self.expected is not None or self.results is not None):
            raise ValueError("progress: it is read from the output where each record is delivered once; leave `expected` and `results` out")
        if (topic := self.reads.kafka.topic) is not None and self.delivers.kafka is not None and topic == self.delivers.kafka.topic:
            raise ValueError(f"delivers.kafka.topic: {topic} is what the job reads; its output must be another topic")
        if self.transactions and self.delivers.kafka is None:
            raise ValueError("transactions: the job delivers to no topic, so it has no transactions of Kafka; leave it out")
        return self

    @property
    def texts(self) -> list[str]:
        """What of the description has placeholders, beside ``env``."""
        return [self.progress.spark_checkpoint] if isinstance(self.progress, SparkCheckpoint) else []

    def _check_env(self) -> None:
        for variable, text in self.env.items():
            if (name := unknown(text, SECRETS)) is not None:
                known = ", ".join([*PLACEHOLDERS, *SECRETS])
                raise ValueError(
                    f"env: there is no placeholder {{{name}}}; there are: {known}. Write {{{{{name}}}}} for the braces themselves"
                )
            if names_a_secret(variable) and not only_placeholder(text):
                raise ValueError(
                    f"env: {variable} holds a secret, which would be kept in every run's folder. Set it in the environment of the process "
                    "that runs streamproof, which the job gets; or take {sasl_password}"
                )

    @property
    def default_name(self) -> str:
        """What the job is called when it says no name."""
        raise NotImplementedError

    @property
    def roles(self) -> frozenset[Role]:
        return frozenset({Role.DRIVER})

    @property
    def _also(self) -> frozenset[Promise]:
        """What it promises beside its guarantee: an output that keeps versions is held to that, unless the job says otherwise."""
        if self.also_promises is None:
            return frozenset({Promise.MONOTONIC} if self.delivers.keeps_versions and self.results is None else ())
        return self.also_promises

    def _check_promises(self) -> None:
        asked = self.also_promises or frozenset()
        of_batches = asked - {Promise.MONOTONIC}
        if Promise.MONOTONIC in asked and not self.delivers.keeps_versions:
            raise ValueError("also_promises: monotonic: only a table of Delta or Iceberg keeps versions; leave it out")
        if Promise.ORDERED in asked and self._location_read.kind is Kind.KEY:
            raise ValueError("also_promises: with the identity as its key each record has a key of its own, and keys have no order to keep")
        if of_batches and self.delivers.kafka is None:
            raise ValueError("also_promises: rows keep no order, and nobody knows which batch wrote one: leave it out")
        if of_batches and self.expected is not None:
            raise ValueError("also_promises: ordered and atomic are judged of jobs that deliver each record once; leave one of the two out")
        if self.progress == "output" and Promise.ATOMIC in asked:
            raise ValueError(
                "also_promises: atomic: where progress is read from the output nobody knows the records of a batch; leave it out"
            )

    def _check_results(self) -> None:
        if self.results is None:
            if self.delivers.identity is None and self.delivers.kafka is None:
                raise ValueError("delivers: expected the `identity` of a row, or `results` of a job that computes some")
            return
        if self.delivers.identity is not None or self.expected is not None or self.also_promises:
            raise ValueError(
                "results: they have no identity and are not counted as records; leave `identity`, `expected` and `also_promises` out"
            )

    @property
    def _location_read(self) -> Location:
        return described.location_read(self.reads, self.delivers, self.results)

    @property
    def _location_delivered(self) -> Location:
        return described.location_delivered(self.delivers, self.results)

    @property
    def profile(self) -> JobProfile:
        by_group = self.progress == "group" or isinstance(self.progress, Group)
        traits = {*self.relies_on, *([Trait.GROUP_OFFSETS] if by_group else []), *([Trait.KAFKA_TRANSACTIONS] if self.transactions else [])}
        traits |= {Trait.DELTA_TABLE} if self.delivers.delta is not None else set()
        traits |= {Trait.ICEBERG_TABLE} if self.delivers.iceberg is not None else set()
        return JobProfile(
            name=self.name or self.default_name,
            engine=self.engine,
            sink=self.delivers.sink,
            guarantee=self.promises,
            promises=self._also,
            roles=self.roles,
            executors_link=False,
            links=SINKS[self.delivers.sink].links,
            traits=frozenset(traits),
            location=self._location_delivered,
            reads=self._location_read,
            of_a_user=True,
            knows_offsets=self.progress != "output",
            not_judged=described.not_judged(self.delivers, self.expected, self.results, self.progress),
            expected=self.expected,
            results=self.results,
        )

    def check(self) -> None:
        """Raises BadInput naming a file or folder of the job that is not there, or what its engine lacks."""
        if self.jars is not None and (problems := install.problems_with(self.jars)):
            raise BadInput(f"job: the engine {self.engine}: {problems[0]}. Run: streamproof setup {self.engine}")
        if not self._cwd.is_dir():
            raise BadInput(f"job: cwd: expected a folder, {self._cwd} is none")
        if self.interpreter is not None:
            self._python()
        self._ddl()
        if self.results is not None:
            self.results.sql()

    def described(self, **common: Any) -> dict[str, Any]:
        """The fields of its :class:`CommandJob`, but for the command; ``common`` are those of any job."""
        return {
            "group": self.progress.group if isinstance(self.progress, Group) else "",
            "engine": self.engine,
            "sink": self.delivers.sink,
            "cwd": str(self._cwd),
            "env": self.env,
            "interpreter": self._python(),
            "spark_checkpoint": self.progress.spark_checkpoint if isinstance(self.progress, SparkCheckpoint) else "",
            "follows_output": self.progress == "output",
            "reads_identity": self._location_read.to_dict(),
            "delivers_identity": self._location_delivered.to_dict(),
            "output": described.output(self.delivers, self._ddl()),
            **common,
            **self.named_topics,
        }

    @property
    def named_topics(self) -> dict[str, str]:
        """The topics whose names the job has fixed, as fields of :class:`Job`."""
        output = self.delivers.kafka.topic if self.delivers.kafka is not None else None
        return {name: topic for name, topic in (("input_topic", self.reads.kafka.topic), ("output_topic", output)) if topic is not None}

    @property
    def _cwd(self) -> Path:
        return (settings.project() / (self.cwd or "")).resolve()

    def _python(self) -> str:
        """The interpreter's file, not resolved: a virtual environment is known by the path of its own link. Raises BadInput."""
        if self.interpreter is None:
            return ""
        path = (settings.project() / Path(self.interpreter).expanduser()).absolute()
        python = path / "bin" / "python" if path.is_dir() else path
        if not python.is_file():
            raise BadInput(f"job: interpreter: expected a Python or the folder of a virtual environment, {python} is not there")
        return str(python)

    def _ddl(self) -> str | None:
        """The SQL that makes the output table. Raises BadInput when its file cannot be read."""
        if self.delivers.postgres is None or self.delivers.postgres.ddl is None:
            return None
        try:
            return (settings.project() / self.delivers.postgres.ddl).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"job: delivers.postgres.ddl cannot be read: {error}") from error


class CommandSpec(OwnJobSpec):
    """Any command line."""

    engine: Literal["command"] = "command"
    command: list[Argument] = Field(min_length=1, description="The command line, with placeholders as {python} and {bootstrap_servers}")
    instances: int = Field(1, ge=1, le=8, description="How many processes run the command side by side; each of them can be killed alone")
    executors: Literal["jvm", "python"] | None = Field(
        None, description="For a job on {spark_master}: whether its tasks run in the executors' JVMs only, or in Python workers too"
    )

    @property
    def texts(self) -> list[str]:
        return [*self.command, *super().texts]

    @property
    def default_name(self) -> str:
        return _script(self.command)

    @property
    def roles(self) -> frozenset[Role]:
        return frozenset({Role.DRIVER, *_EXECUTORS[self.executors], *([Role.WORKERS] if self.instances > 1 else [])})

    def job(self, testbed: Testbed, **common: Any) -> CommandJob:
        return CommandJob(command=self.command, instances=self.instances, executors=self.executors is not None, **self.described(**common))


_EXECUTORS: dict[str | None, frozenset[Role]] = {
    None: frozenset(),
    "jvm": frozenset({Role.EXECUTORS}),
    "python": frozenset({Role.EXECUTORS, Role.PYTHON_WORKERS}),
}


def _script(command: list[str]) -> str:
    """The name of the command's script: its first argument that names a file with an ending, else the program's."""
    files = [Path(argument) for argument in command if Path(argument).suffix and not argument.startswith("-")]
    return (files or [Path(command[0])])[0].stem
