"""The strategies and the pipelines there are, by name. Importing this imports neither Spark nor a client of Kafka or PostgreSQL."""

from __future__ import annotations

from streamproof import registry
from streamproof.engines.spark.pipeline import Pipeline
from streamproof.engines.spark.strategies.strategy import Strategy

STRATEGIES: dict[str, Strategy] = registry.registered("strategies")
PIPELINES: dict[str, Pipeline] = registry.registered("pipelines")
