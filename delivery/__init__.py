"""What loss, duplication and the guarantees mean.

A streaming pipeline is judged by comparing two columnar histories: what a producer *sent* (with the outcome the broker gave it) and
what a read-committed reader found *delivered*. Nothing in this package knows Spark, Kafka or Airflow: give it the two histories and
it names every record that was lost, doubled, invented or damaged.
"""
