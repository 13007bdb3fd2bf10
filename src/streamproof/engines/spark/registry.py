"""The pipelines there are, by name. One is registered by naming it in ``_ALL``. Importing this imports neither Spark nor Kafka."""

from __future__ import annotations

from streamproof.engines.spark.departures import Departures
from streamproof.engines.spark.departures_with_weather import DeparturesWithWeather
from streamproof.engines.spark.kafka_to_kafka import KafkaToKafka
from streamproof.engines.spark.pipeline import Pipeline

_ALL: tuple[Pipeline, ...] = (KafkaToKafka(), Departures(), DeparturesWithWeather())
PIPELINES: dict[str, Pipeline] = {pipeline.name: pipeline for pipeline in _ALL}
