"""The data source ``streamproof-kafka`` in a plain PySpark job: what it writes, what it refuses, and a late EndTxn."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from streamproof.engines.spark import settings as spark_settings
from streamproof.engines.spark.decisions import DecisionLog
from streamproof.engines.spark.failpoints import disarm, hold, holds
from streamproof.evidence.folder import RunFolder
from streamproof.kafka.transactions import Coordinator, Prepared, TransactionLost
from streamproof.testbed import install, spark
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.kafka import Cluster
from streamproof.testbed.process import wait_until
from tests.support.checkout import ROOT
from tests.support.delivered import delivered

WAIT_S = 120.0
ROWS = 10
SESSION = """
import json, sys
from pyspark.sql import SparkSession
order = json.loads(sys.argv[1])
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "1")
for name, value in order["conf"].items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
"""
ENDLESS = (
    SESSION
    + """
rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", order["rows"]).option("numPartitions", 1).load()
writer = rows.selectExpr("CAST(value AS STRING) AS value").writeStream.format("streamproof-kafka").options(**order["options"])
writer.trigger(processingTime="200 milliseconds").start().awaitTermination()
"""
)
ONCE = (
    SESSION
    + """
schema = "topic STRING, key STRING, value STRING, partition INT, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
for options in order["queries"]:
    rows = spark.readStream.schema(schema).json(order["input"])
    columns = options.pop("columns")
    try:
        query = rows.select(*columns).writeStream.format("streamproof-kafka").options(**options).trigger(availableNow=True).start()
        query.awaitTermination()
        print(json.dumps("ended"), flush=True)
    except Exception as error:
        print(json.dumps(str(error)), flush=True)
"""
)


def command(script: str, folder: RunFolder, **order: Any) -> tuple[list[str], dict[str, str]]:
    conf = {
        "spark.driver.extraClassPath": spark.connector_class_path(),
        "spark.driver.extraJavaOptions": " ".join(spark_settings.failpoint_flags(folder.path)),
    }
    environment = {**os.environ, "JAVA_HOME": str(install.java_home()), "SPARK_LOCAL_IP": "127.0.0.1"}
    return [sys.executable, "-c", script, json.dumps({"conf": conf, **order})], environment


@contextmanager
def running(script: str, folder: RunFolder, **order: Any) -> Iterator[subprocess.Popen[bytes]]:
    words, environment = command(script, folder, **order)
    child = subprocess.Popen(words, env=environment, cwd=ROOT, start_new_session=True)
    try:
        yield child
    finally:
        os.killpg(child.pid, 9)
        child.wait(30)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run")


def test_a_late_end_of_the_transaction_before_is_refused_while_the_next_one_is_open(
    testbed: Testbed, cluster: Cluster, topic: str, folder: RunFolder, tmp_path: Path
) -> None:
    log = DecisionLog(tmp_path / "checkpoint" / "decisions")
    options = {
        "kafka.bootstrap.servers": testbed.driver_kafka,
        "topic": topic,
        "transactionalIdPrefix": topic,
        "checkpointLocation": str(tmp_path / "checkpoint"),
    }

    def done() -> int:
        return max((int(path.stem) for path in log.folder.glob("*.done")), default=-1)

    def numbers() -> list[int]:
        return sorted(int(message.value()) for message in delivered(testbed, topic))

    with running(ENDLESS, folder, rows=ROWS, options=options), Coordinator(testbed.driver_kafka) as coordinator:
        wait_until("three batches", lambda: done() >= 2, WAIT_S)
        hold(folder, "after_prepare", WAIT_S)
        wait_until("a task to be held with its transaction prepared", lambda: holds(folder, "after_prepare"), WAIT_S)
        batch = done()
        (before,), (now,) = log.read(batch) or [], coordinator.ongoing(f"{topic}.")
        assert now == Prepared(before.transactional_id, before.producer_id, before.epoch + 1), "one id, and an epoch for each transaction"
        with pytest.raises(TransactionLost, match=r"InvalidProducerEpoch|ProducerFenced"):
            coordinator.commit([before])
        assert coordinator.ongoing(f"{topic}.") == [now], "the open transaction is as it was"
        assert numbers() == list(range((batch + 1) * ROWS))
        disarm(folder, "after_prepare")
        wait_until("the batch to be committed", lambda: done() > batch, WAIT_S)
    found = numbers()
    assert found == list(range(len(found)))
    assert len(found) >= (batch + 2) * ROWS


def test_it_writes_the_columns_of_sparks_own_sink_and_says_what_it_does_not_take(
    testbed: Testbed, topic: str, folder: RunFolder, tmp_path: Path
) -> None:
    rows = tmp_path / "rows"
    rows.mkdir()
    row = {"topic": topic, "key": "k", "value": "v", "partition": 1, "headers": [{"key": "h", "value": "aGk="}]}
    (rows / "1.json").write_text(json.dumps(row) + "\n" + json.dumps({"topic": topic, "value": "without a key", "partition": 0}))
    every = ["topic", "key", "value", "partition", "headers"]
    common = {"kafka.bootstrap.servers": testbed.driver_kafka}
    first = {**common, "columns": every, "checkpointLocation": str(tmp_path / "first")}
    queries = [
        first,
        first,
        {**common, "columns": every, "checkpointLocation": str(tmp_path / "new"), "decisions": str(tmp_path / "first" / "decisions")},
        {**common, "columns": ["value"], "checkpointLocation": str(tmp_path / "no-topic")},
        {**common, "columns": ["topic"], "checkpointLocation": str(tmp_path / "no-value")},
    ]
    words, environment = command(ONCE, folder, input=str(rows), queries=queries)
    done = subprocess.run(words, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=2 * WAIT_S, check=True)
    said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('"')]
    assert said[:2] == ["ended", "ended"], "the same query twice: the second finds nothing new"
    assert "a new checkpoint needs a new folder for its decisions" in said[2]
    assert "set the option topic, or add a column topic" in said[3]
    assert "expected a column value, found struct<topic:string>" in said[4]
    found = {message.partition(): (message.key(), message.value(), message.headers()) for message in delivered(testbed, topic)}
    assert found == {1: (b"k", b"v", [("h", b"hi")]), 0: (None, b"without a key", None)}
