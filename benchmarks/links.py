"""What message links cost: a plain client with them and without them, in turn. ``python -m benchmarks.links``.

The testbed's proxies lead straight to the servers in one half of a round, and through message links with a trace in the other; which comes
first changes from round to round. Ratios are taken within a round, and their median is reported, since the machine's mood changes more
between minutes. Four clients:

    produce            as fast as librdkafka sends: records/s of 100 bytes, acks=all, idempotent
    transactions       transactions/s of 100 records each, one after the other: each is four requests and their answers
    copy               rows/s of COPY into a table
    statements         INSERTs/s of one row, each in a transaction of its own

A ratio of 0.95 and more is the goal. Prints a table and writes ``build/bench-links.json``: a list of {name, straight, linked, unit, ratio}.
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
from pathlib import Path

import psycopg
from confluent_kafka import Producer

from streamproof import settings
from streamproof.testbed import embedded
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.kafka import Cluster

WAIT_S = 120.0
VALUE = b"x" * 100
PER_TRANSACTION = 100
Client = Callable[[Testbed, str, int], None]


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
    "produce": (produce, 200_000, "records/s"),
    "transactions": (transactions, 100, "transactions/s"),
    "copy": (copy, 200_000, "rows/s"),
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
        print(f"{figure['name']:<14}{figure['straight']:>12.0f}{figure['linked']:>12.0f} {figure['unit']:<16} ratio {figure['ratio']:.3f}")
    Path("build").mkdir(exist_ok=True)
    Path("build/bench-links.json").write_text(json.dumps(figures, indent=1) + "\n")
    return 0


def _measure(testbed: Testbed, rounds: int) -> dict[str, list[dict[bool, float]]]:
    """Per client and round the rate without links (False) and with them (True)."""
    measured: dict[str, list[dict[bool, float]]] = {name: [] for name in CLIENTS}
    for number in range(rounds + 1):
        for name, (client, count, _) in CLIENTS.items():
            rates = {linked: _rate(testbed, client, count, linked) for linked in ((False, True) if number % 2 else (True, False))}
            if number:  # the first round warms up
                measured[name].append(rates)
    return measured


def _rate(testbed: Testbed, client: Client, count: int, linked: bool) -> float:
    name = f"bench-{uuid.uuid4().hex[:8]}"
    Cluster(testbed.direct_kafka).create_topics({name: 4})
    with psycopg.connect(testbed.direct_postgres, autocommit=True) as direct:
        direct.execute(f'CREATE TABLE "{name}" (id int, value text)')
    if linked:
        testbed.read_messages({"kafka", "postgres"})
        testbed.messages.trace(Path(testbed.folder) / f"{name}.jsonl")
    begun = time.monotonic()
    try:
        client(testbed, name, count)
        return count / (time.monotonic() - begun)
    finally:
        testbed.straighten()
        Cluster(testbed.direct_kafka).delete_topics([name])
        with psycopg.connect(testbed.direct_postgres, autocommit=True) as direct:
            direct.execute(f'DROP TABLE "{name}"')


def _figure(name: str, rounds: list[dict[bool, float]]) -> dict[str, str | float]:
    return {
        "name": name,
        "straight": statistics.median(rates[False] for rates in rounds),
        "linked": statistics.median(rates[True] for rates in rounds),
        "unit": CLIENTS[name][2],
        "ratio": round(statistics.median(rates[True] / rates[False] for rates in rounds), 3),
    }


if __name__ == "__main__":
    sys.exit(main())
