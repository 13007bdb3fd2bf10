"""What the tests of real components share: topics of their own, and transactional producers that are killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator

import pytest

from streamproof.testbed.embedded import Testbed
from streamproof.testbed.kafka import Cluster
from tests.support.checkout import ROOT

PREPARES = """
import json, sys
from confluent_kafka import Producer
order = json.loads(sys.argv[1])
producer = Producer({"bootstrap.servers": order["bootstrap"], "transactional.id": order["id"],
                     "transaction.timeout.ms": order["timeout_ms"], "log_level": 0})
producer.init_transactions(30)
producer.begin_transaction()
for number in range(order["records"]):
    producer.produce(order["topic"], order["value"], str(number), partition=number % order["partitions"])
left = producer.flush(30)
print("prepared" if left == 0 else f"{left} left", flush=True)
sys.stdin.read()
"""
Prepare = Callable[..., str]


@pytest.fixture
def cluster(testbed: Testbed) -> Cluster:
    return Cluster(testbed.direct_kafka)


@pytest.fixture
def topic(cluster: Cluster) -> Iterator[str]:
    """A topic of two partitions, deleted afterwards."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    cluster.create_topics({name: 2})
    yield name
    cluster.delete_topics([name])


@pytest.fixture
def prepare(testbed: Testbed) -> Prepare:
    """Prepare a transaction of ``records`` in a process that is killed then; returns its transactional id."""

    def prepared(topic: str, transactional_id: str | None = None, records: int = 10, timeout_ms: int = 60_000, value: str = "v") -> str:
        name = transactional_id or f"test.{uuid.uuid4().hex}"
        order = {"bootstrap": testbed.driver_kafka, "id": name, "timeout_ms": timeout_ms, "records": records, "topic": topic}
        command = [sys.executable, "-c", PREPARES, json.dumps({**order, "partitions": 2, "value": value})]
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "prepared\n"
        finally:
            child.send_signal(signal.SIGKILL)
            child.communicate(timeout=10)
        return name

    return prepared
