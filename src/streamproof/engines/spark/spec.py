"""A Spark job of ours as an experiment describes it: which pipeline, delivered by which strategy."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from streamproof.engines.spark import settings
from streamproof.engines.spark.job import OnLostDecision, SparkJob
from streamproof.engines.spark.registry import PIPELINES, STRATEGIES
from streamproof.jobs.failpoint import Site
from streamproof.jobs.profile import JobProfile, Role, Trait
from streamproof.jobs.state_store import StateStore
from streamproof.sinks.outputs import SINKS
from streamproof.testbed.embedded import Testbed


@dataclass(frozen=True)
class SparkSpec:
    """``options`` are the pipeline's own. ``half`` is whether another start of the job must find room beside the first one."""

    strategy: str
    pipeline: str = "kafka_to_kafka"
    options: dict[str, int] = field(default_factory=dict)
    on_lost_decision: OnLostDecision = OnLostDecision.STOP
    state_store: StateStore = StateStore.DEFAULT
    fail_on_data_loss: bool = True
    half: bool = False

    @property
    def profile(self) -> JobProfile:
        known = profile(self.strategy)
        return replace(known, traits=known.traits | {Trait.STATE_STORE}) if PIPELINES[self.pipeline].stateful else known

    def check(self) -> None:
        """Its files are ours."""

    @property
    def named_topics(self) -> dict[str, str]:
        return {}

    def job(self, testbed: Testbed, **common: Any) -> SparkJob:
        stateful = PIPELINES[self.pipeline].stateful
        return SparkJob(
            engine="spark",
            pipeline=self.pipeline,
            strategy=self.strategy,
            sink=STRATEGIES[self.strategy].sink,
            master=testbed.spark_master,
            spark=settings.of_run(
                Path(common["folder"]), STRATEGIES[self.strategy], state=self.state_store if stateful else None, half=self.half
            ),
            stateful=stateful,
            output_mode=PIPELINES[self.pipeline].output_mode,
            options=self.options,
            on_lost_decision=self.on_lost_decision,
            fail_on_data_loss=self.fail_on_data_loss,
            executors_bootstrap=str(testbed.executors_kafka),
            **common,
        )


def profile(strategy: str) -> JobProfile:
    """What is known of a job with that strategy. Its tasks run Python when a step of the protocol is passed there."""
    implementation = STRATEGIES[strategy]
    runs_python = any(point.at == Site.TASK for point in implementation.failpoints)
    return JobProfile(
        name=strategy,
        engine="spark",
        sink=implementation.sink,
        guarantee=implementation.guarantee,
        promises=implementation.promises,
        roles=frozenset({Role.DRIVER, Role.EXECUTORS, *([Role.PYTHON_WORKERS] if runs_python else [])}),
        links=SINKS[implementation.sink].links,
        traits=implementation.traits,
        failpoints=implementation.failpoints,
        second_crashes=implementation.doubles,
        open_transaction_step=implementation.open_transaction_step,
        decided_transaction_step=implementation.decided_transaction_step,
    )
