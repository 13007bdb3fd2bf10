"""The engine ``dstreams``: a job on Spark's first streaming interface, discretized streams."""
