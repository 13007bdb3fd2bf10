"""Copies a topic by Spark, in Kafka transactions. The offset of a consumer group that nobody else uses is the number of the next batch."""

import os

from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import DataFrame, SparkSession

OUTPUT, JOB = os.environ["OUTPUT"], os.environ["JOB"]


def main() -> None:
    servers = os.environ["BOOTSTRAP_SERVERS"]
    # Without the last setting it may wait for ever for a broker that it has forgotten.
    producer = Producer({"bootstrap.servers": servers, "transactional.id": f"{JOB}.copy", "metadata.recovery.strategy": "none"})
    producer.init_transactions()
    ledger = Consumer({"bootstrap.servers": servers, "group.id": f"{JOB}-batches", "enable.auto.commit": False})

    def save(batch: DataFrame, number: int) -> None:
        if ledger.committed([TopicPartition(OUTPUT, 0)], timeout=30)[0].offset > number:
            return
        producer.begin_transaction()
        for row in batch.select("key", "value").collect():
            producer.produce(OUTPUT, bytes(row.value), None if row.key is None else bytes(row.key))
        after = [TopicPartition(OUTPUT, 0, number + 1)]
        producer.commit_transaction(30)
        ledger.commit(offsets=after, asynchronous=False)

    spark = SparkSession.builder.appName("copy").master("local[2]").config("spark.jars", os.environ["SPARK_JARS"]).getOrCreate()
    messages = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", os.environ["TOPIC"])
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", os.environ["BATCH"])
        .load()
    )
    messages.writeStream.foreachBatch(save).option("checkpointLocation", os.environ["CHECKPOINT"]).start().awaitTermination()


if __name__ == "__main__":
    main()
