"""A bare Spark application beside a run: the same batches, with nothing of this project. ``python -m benchmarks.bare_spark '{...}'``.

It reads one topic in micro-batches and writes another by Spark's own Kafka sink, until it has read everything there is. Its settings come
as JSON: ``{master, kafka, input, output, batch_records, checkpoint, spark}``.
"""

from __future__ import annotations

import json
import sys


def main() -> int:
    from pyspark.sql import SparkSession

    given = json.loads(sys.argv[1])
    builder = SparkSession.builder.appName("bare").master(given["master"])
    for key, value in given["spark"].items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    read = session.readStream.format("kafka").option("kafka.bootstrap.servers", given["kafka"]).option("subscribe", given["input"])
    rows = read.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", given["batch_records"]).load()
    write = rows.select("key", "value").writeStream.format("kafka").option("kafka.bootstrap.servers", given["kafka"])
    query = write.option("topic", given["output"]).option("checkpointLocation", given["checkpoint"]).trigger(availableNow=True).start()
    query.awaitTermination()
    session.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
