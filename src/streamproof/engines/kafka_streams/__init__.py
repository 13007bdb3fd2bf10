"""The engine ``kafka_streams``: a job on Kafka Streams, as several instances of one application."""
