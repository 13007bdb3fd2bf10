"""Jobs and runs as tests need them: whole, with what a test does not name left at something plain."""

from __future__ import annotations

import random
import time
from typing import Any, cast

from streamproof.engines.lookup import engine_of
from streamproof.engines.spark.job import SparkJob
from streamproof.engines.spark.registry import PIPELINES, STRATEGIES
from streamproof.engines.spark.spec import profile
from streamproof.evidence.folder import RunFolder
from streamproof.evidence.progress import Progress
from streamproof.jobs.context import RunContext
from streamproof.testbed.embedded import Testbed


def spark_job(folder: RunFolder | str = "", strategy: str = "checkpoint", pipeline: str = "kafka_to_kafka", **fields: Any) -> SparkJob:
    given: dict[str, Any] = {
        "engine": "spark",
        "name": "q",
        "folder": str(folder.path if isinstance(folder, RunFolder) else folder),
        "sink": STRATEGIES[strategy].sink,
        "bootstrap": "",
        "input_topic": "in",
        "output_topic": "out",
        "batch_records": 1,
        "transaction_timeout_ms": 1,
        "pipeline": pipeline,
        "strategy": strategy,
        "master": "",
        "spark": {},
        "stateful": PIPELINES[pipeline].stateful,
    }
    return SparkJob(**{**given, **fields})


def run_context(folder: RunFolder, testbed: Testbed | None = None, *, job: SparkJob | None = None, **fields: Any) -> RunContext:
    """``fields`` are those of :class:`RunContext`."""
    job = job or spark_job(folder)
    given: dict[str, Any] = {
        "folder": folder,
        "testbed": cast(Testbed, testbed),
        "job": job,
        "engine": engine_of(job),
        "profile": profile(job.strategy),
        "progress": Progress(folder),
        "rng": random.Random(1),
        "deadline": time.monotonic() + 20,
        "records": 100,
    }
    return RunContext(**{**given, **fields})
