"""What loss, duplication and the guarantees mean.

A streaming pipeline is judged by comparing two columnar histories: what a producer *sent* (with the outcome the broker gave it) and
what a read-committed reader found *delivered*. Nothing in this package talks to Spark, Kafka or Airflow: give it the two histories and
it names every record that was lost, doubled, invented or damaged.

Beside that it has what all others build on: a run's folder (``folder``), and which of Kafka's errors are over in a moment (``asking``).
"""
