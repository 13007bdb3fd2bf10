"""What message links cost: a plain client with them and without them, in turn. ``python -m benchmarks.links``.

The testbed's proxies lead straight to the servers in one half of a round, and through message links with a trace in the other; which comes
first changes from round to round. Ratios are taken within a round, and their median is reported, since the machine's mood changes more
between minutes. Four clients:

    produce            as fast as librdkafka sends: records/s of 100 bytes, acks=all, idempotent
    transactions       transactions/s of 100 records each, one after the other: each is four requests and their answers
    copy               rows/s of COPY into a table
    statements         INSERTs/s of one row, each in a transaction of its own

A ratio of 0.95 and more is the goal. On a busy machine rates say little: the processor time of the proxy server, for the same work, is
measured too. Prints a table and writes ``build/bench-links.json``: a list of {name, straight, linked, unit, ratio, straight_cpu_ms,
linked_cpu_ms}.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psycopg
from confluent_kafka import Producer

from streamproof import settings
from streamproof.testbed import embedded
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.kafka import Cluster
from streamproof.testbed.process import remembered

WAIT_S = 120.0
VALUE = b"x" * 100
PER_TRANSACTION = 100
Client = Callable[[Testbed, str, int], None]


@dataclass(frozen=True)
class Measured:
    """What a client did in one half of a round, and the processor time that the proxy server took for it."""

    rate: float
    proxy_cpu_ms: float


def produce(testbed: Testbed, name: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": testbed.driver_kafka, "enable.idempotence": True, "queue.buffering.max.messages": count})
    for _ in range(count):
        producer.produce(name, VALUE)
    left = producer.flush(WAIT_S)
    if left:
        raise RuntimeError(f"{left} of {count} records were not acknowledged")


def transactions(testbed: Testbed, name: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": testbed.driver_kafka, "transactional.id": name, "linger.ms": 0})
    producer.init_transactions(WAIT_S)
    for _ in range(count):
        producer.begin_transaction()
        for _ in range(PER_TRANSACTION):
            producer.produce(name, VALUE)
        producer.commit_transaction(WAIT_S)


def copy(testbed: Testbed, name: str, count: int) -> None:
    with psycopg.connect(testbed.pipeline_postgres, autocommit=True) as client, client.cursor().copy(f'COPY "{name}" FROM STDIN') as rows:
        for number in range(count):
            rows.write_row((number, VALUE.decode()))


def statements(testbed: Testbed, name: str, count: int) -> None:
    with psycopg.connect(testbed.pipeline_postgres, autocommit=True) as client:
        for number in range(count):
            client.execute(f'INSERT INTO "{name}" VALUES (%s, %s)', (number, VALUE.decode()))


CLIENTS: dict[str, tuple[Client, int, str]] = {
    "produce": (produce, 300_000, "records/s"),
    "transactions": (transactions, 100, "transactions/s"),
    "copy": (copy, 300_000, "rows/s"),
    "statements": (statements, 1000, "statements/s"),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="how often each client is measured with and without (default 5)")
    options = parser.parse_args()
    os.environ["STREAMPROOF_CACHE"] = str(settings.cache())
    os.environ["STREAMPROOF_HOME"] = str(settings.home() / "bench")
    try:
        measured = _measure(embedded.up(lambda line: print(line, flush=True)), options.rounds)
    finally:
        embedded.down()
    figures = [_figure(name, rounds) for name, rounds in measured.items()]
    for figure in figures:
        print(
            f"{figure['name']:<14}{figure['straight']:>12.0f}{figure['linked']:>12.0f} {figure['unit']:<16} ratio {figure['ratio']:.3f}"
            f"   proxy {figure['straight_cpu_ms']} and {figure['linked_cpu_ms']} ms of processor time"
        )
    Path("build").mkdir(exist_ok=True)
    Path("build/bench-links.json").write_text(json.dumps(figures, indent=1) + "\n")
    return 0


def _measure(testbed: Testbed, rounds: int) -> dict[str, list[dict[bool, Measured]]]:
    """Per client and round, without links (False) and with them (True)."""
    measured: dict[str, list[dict[bool, Measured]]] = {name: [] for name in CLIENTS}
    for number in range(rounds + 1):
        for name, (client, count, _) in CLIENTS.items():
            both = {linked: _half(testbed, client, count, linked) for linked in ((False, True) if number % 2 else (True, False))}
            if number:  # the first round warms up
                measured[name].append(both)
    return measured


def _half(testbed: Testbed, client: Client, count: int, linked: bool) -> Measured:
    name = f"bench-{uuid.uuid4().hex[:8]}"
    Cluster(testbed.direct_kafka).create_topics({name: 4})
    with psycopg.connect(testbed.direct_postgres, autocommit=True) as direct:
        direct.execute(f'CREATE TABLE "{name}" (id int, value text)')
    if linked:
        testbed.read_messages({"kafka", "postgres"})
        testbed.messages.trace(Path(testbed.folder) / f"{name}.jsonl")
    begun, before_ms = time.monotonic(), _proxy_cpu_ms()
    try:
        client(testbed, name, count)
        return Measured(count / (time.monotonic() - begun), _proxy_cpu_ms() - before_ms)
    finally:
        testbed.straighten()
        Cluster(testbed.direct_kafka).delete_topics([name])
        with psycopg.connect(testbed.direct_postgres, autocommit=True) as direct:
            direct.execute(f'DROP TABLE "{name}"')


def _proxy_cpu_ms() -> float:
    handle = remembered("toxiproxy", embedded.folder())
    process = handle.process() if handle is not None else None
    if process is None:
        raise RuntimeError("the proxy server is gone")
    times = process.cpu_times()
    return (times.user + times.system) * 1000


def _figure(name: str, rounds: list[dict[bool, Measured]]) -> dict[str, str | float]:
    return {
        "name": name,
        "straight": statistics.median(both[False].rate for both in rounds),
        "linked": statistics.median(both[True].rate for both in rounds),
        "unit": CLIENTS[name][2],
        "ratio": round(statistics.median(both[True].rate / both[False].rate for both in rounds), 3),
        "straight_cpu_ms": round(statistics.median(both[False].proxy_cpu_ms for both in rounds)),
        "linked_cpu_ms": round(statistics.median(both[True].proxy_cpu_ms for both in rounds)),
    }


if __name__ == "__main__":
    sys.exit(main())
