"""The pipelines there are, by name. One is registered by naming it in ``_ALL``. Importing this imports neither Spark nor Kafka."""

from __future__ import annotations

from pipelines.departures import Departures
from pipelines.departures_with_weather import DeparturesWithWeather
from pipelines.kafka_to_kafka import KafkaToKafka
from pipelines.pipeline import Pipeline

_ALL: tuple[Pipeline, ...] = (KafkaToKafka(), Departures(), DeparturesWithWeather())
PIPELINES: dict[str, Pipeline] = {pipeline.name: pipeline for pipeline in _ALL}
