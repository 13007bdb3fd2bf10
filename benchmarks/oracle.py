"""Speed and memory of the oracle beside others who could do its work. ``python -m benchmarks.oracle``, or ``make bench-oracle``.

For each size one topic is filled, and a run's folder that says what was sent: records of some 150 bytes in the log, with the header and the
transactions of a job that commits in two phases, four partitions, a thousand keys. Five records are missing and five are there twice;
whoever does not find just these is not measured, but told. Then, one after the other, each in a process of its own:

    ConsumerPerformance   Kafka's own tool: how fast a consumer in Java reads the topic. Its own figure, without the time to join a group
    drain and check       ``drain`` and ``verify``: from the topic to the verdict
    check                 the same without the drain: from the run's folder to the verdict
    check, all promises   the same for a strategy that promises order and atomicity too; the batches of the missing records are torn then
    check and suites' queries   check, and then the other judge: the queries of the expectation suites, compared record by record
    duckdb, polars        a full outer join of both sides' Parquet files by identity: lost, doubled, unknown, damaged; no blame, no times
    spark                 the same join, as a Spark job would do it, on two cores

Memory is the most that a process and its children had resident at a time, looked at ten times a second. Prints a table and writes
``build/bench-oracle.json``: a list of {name, value, unit, peer, ratio}.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from streamproof import settings
from streamproof.evidence import histories, identity, manifest
from streamproof.evidence.folder import RunFolder, append_json_line
from streamproof.evidence.journal import DriverReady
from streamproof.run.stages import suite_spec
from streamproof.suites import agreement
from streamproof.testbed import embedded, install, java
from streamproof.testbed.kafka import Cluster
from streamproof.verdict.guarantee import Guarantee, Promise
from streamproof.verdict.judge import RunSpec, judge
from tests.support.checkout import ROOT

PARTITIONS = 4
KEYS = 1000
BATCH = 250_000  # records of a micro-batch, and of a transaction
PER_MS = 800
DAMAGED = 5
BEGUN_MS = 1_790_000_000_000
LIMIT_S = 400.0
FREE_BYTES_A_RECORD = 200
PAYLOAD = b'{"n":"0000000000","carrier":"UA","flight":"1545","at":"2013-01-01T05:15Z"}'
NAMES = {
    "consumer": "ConsumerPerformance",
    "whole": "drain and check",
    "check": "check",
    "promises": "check, all promises",
    "suites": "check and suites' queries",
    "duckdb": "duckdb",
    "polars": "polars",
    "spark": "spark",
}
PEERS = {"whole": "consumer", "duckdb": "check", "polars": "check", "spark": "check"}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", default="1", help="millions of records, several separated by commas (default 1)")
    parser.add_argument("--only", nargs="*", default=list(NAMES), choices=NAMES, metavar="WHO", help=", ".join(NAMES))
    parser.add_argument("--picture", type=Path, help="write the curve here, as SVG")
    parser.add_argument("--measure", nargs=4, help=argparse.SUPPRESS)  # what, folder, bootstrap, topic: in the process that is measured
    options = parser.parse_args()
    if options.measure:
        what, folder, bootstrap, topic = options.measure
        print(json.dumps(MEASURES[what](RunFolder(folder), bootstrap, topic)))
        return 0
    sizes = [int(float(size) * 1_000_000) for size in options.sizes.split(",")]
    free = shutil.disk_usage(ROOT).free
    if free < 2 * max(sizes) * FREE_BYTES_A_RECORD:
        raise SystemExit(f"{max(sizes)} records take {max(sizes) * FREE_BYTES_A_RECORD / 1e9:.0f} GB of disk, {free / 1e9:.0f} GB are free")
    os.environ["STREAMPROOF_CACHE"] = str(settings.cache())
    os.environ["STREAMPROOF_HOME"] = str(settings.home() / "bench")
    java.QUICK_START.clear()  # they cap what a JVM can do
    embedded.down()
    shutil.rmtree(settings.home(), ignore_errors=True)
    results: dict[tuple[str, int], Measured] = {}
    try:
        for size in sizes:
            _measure(embedded.up(_say).direct_kafka, size, options.only, results)
            _print(results, sizes)
            if options.picture:
                _draw(results, options.picture)
    finally:
        embedded.down()
        shutil.rmtree(settings.home(), ignore_errors=True)
    return 0


def _say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)


# --- what is measured ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Measured:
    """``seconds`` is None for who was not done in time, or found something else than there is."""

    records: int
    seconds: float | None
    mib: float
    more: dict[str, float]

    @property
    def records_per_s(self) -> float | None:
        return self.records / self.seconds if self.seconds else None


def _measure(bootstrap: str, size: int, only: list[str], results: dict[tuple[str, int], Measured]) -> None:
    topic = f"bench.{size}"
    folder = RunFolder.create(settings.home() / "bench-oracle" / str(size))
    cluster = Cluster(bootstrap)
    cluster.create_topics({topic: PARTITIONS})
    begun = time.monotonic()
    _fill(folder, bootstrap, topic, size)
    _say(f"{size} records sent in {time.monotonic() - begun:.0f} s")
    for name in NAMES:
        if name not in only and not (name == "whole" and set(NAMES) - {"consumer"} & set(only)):
            continue
        results[name, size] = measured = _in_a_process(name, folder, bootstrap, topic, size)
        rate = f"{measured.records_per_s:,.0f} records/s" if measured.records_per_s else "not done"
        _say(f"{size} records, {NAMES[name]}: {rate}, {measured.mib:.0f} MiB {measured.more or ''}")
        Path("build").mkdir(exist_ok=True)
        Path("build/bench-oracle.json").write_text(json.dumps(list(_figures(results)), indent=1) + "\n")
    cluster.delete_topics([topic])
    shutil.rmtree(folder.path)


def _in_a_process(who: str, folder: RunFolder, bootstrap: str, topic: str, size: int) -> Measured:
    command = [sys.executable, "-m", "benchmarks.oracle", "--measure", who, str(folder.path), bootstrap, topic]
    if who == "consumer":
        jars = f"{settings.cache() / 'jars' / 'kafka'}/*"
        command = [
            str(install.java_executable()),
            "-cp",
            jars,
            "org.apache.kafka.tools.ConsumerPerformance",
            "--bootstrap-server",
            bootstrap,
        ]
        command += ["--topic", topic, "--messages", str(size), "--timeout", "60000"]
    log = folder.path / f"{who}.log"
    with log.open("w") as errors:
        child = psutil.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=ROOT)
        most, deadline = 0.0, time.monotonic() + LIMIT_S
        while child.poll() is None and time.monotonic() < deadline:
            most = max(most, _resident(child))
            time.sleep(0.1)
    if child.poll() is None:
        for process in [*child.children(recursive=True), child]:
            process.kill()
        return Measured(size, None, most, {})
    output = child.stdout.read().strip()
    if child.returncode != 0:
        raise SystemExit(f"{NAMES[who]} failed:\n{log.read_text()[-2000:]}")
    if who == "consumer":
        fields = [field.strip() for field in output.splitlines()[-1].split(",")]
        consumed, rate, joining, fetching = int(fields[4]), float(fields[5]), float(fields[6]), float(fields[9])
        if consumed < size:
            raise SystemExit(f"ConsumerPerformance read {consumed} of {size} records:\n{output}")
        return Measured(consumed, consumed / fetching, most, {"with the join of its group": rate, "join_ms": joining})
    answer = json.loads(output.splitlines()[-1])
    expected = {"lost": DAMAGED, "doubled": DAMAGED, "unknown": 0, "damaged": 0}
    if answer["found"] != expected:
        raise SystemExit(f"{NAMES[who]} found {answer['found']}, expected {expected}")
    return Measured(size, answer["seconds"], most, answer.get("more", {}))


def _resident(process: psutil.Process) -> float:
    """MiB of a process and its children."""
    bytes_used = 0
    for member in [process, *process.children(recursive=True)]:
        try:
            bytes_used += member.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return bytes_used / (1 << 20)


# --- the records --------------------------------------------------------------------------------------------------------------------


def _fill(folder: RunFolder, bootstrap: str, topic: str, size: int) -> None:
    """Send ``size`` records in transactions, and write down that they were sent; a few of these are not, and as many twice."""
    from streamproof.kafka.librdkafka import TransactionalProducer

    keys = pa.array([b"k%d" % number for number in range(KEYS)], pa.binary())
    rng = np.random.default_rng(size)
    lost, doubled = rng.choice(size, 2 * DAMAGED, replace=False).reshape(2, DAMAGED)
    options = {"bootstrap.servers": bootstrap, "transactional.id": topic, "linger.ms": 5, "queue.buffering.max.messages": 500_000}
    writer = pq.ParquetWriter(folder.sent / "00000.parquet", histories.SENT, **histories.FAST)
    reached = np.zeros(PARTITIONS, np.int64)
    with TransactionalProducer(options) as producer:
        producer.connect(topic, 20)
        producer.init_transactions(20)
        for batch, first in enumerate(range(0, size, BATCH)):
            sequence = np.arange(first, min(first + BATCH, size))
            chosen = rng.integers(0, KEYS, len(sequence))
            values, crc = _values(sequence, chosen)
            partition = chosen % PARTITIONS
            offset = np.zeros(len(sequence), np.int64)
            since = reached.copy()
            for number in range(PARTITIONS):
                here = partition == number
                offset[here] = reached[number] + np.arange(here.sum())
                reached[number] += here.sum()
            keys_column = pa.DictionaryArray.from_arrays(pa.array(chosen.astype(np.int32)), keys)
            rows = {
                "producer": pa.array(np.zeros(len(sequence), np.int32)),
                "sequence": sequence,
                "partition": partition.astype(np.int32),
                "offset": offset,
                "key": keys_column.cast(pa.binary()).cast(pa.string()),
                "crc": crc,
                "outcome": pa.array(["ACKED"]).take(pa.array(np.zeros(len(sequence), np.int8))),
                "sent_at": pa.array(_sent_at(sequence)).cast(histories.SENT.field("sent_at").type),
            }
            writer.write_table(pa.table(rows, schema=histories.SENT), row_group_size=1 << 17)
            copies = 1 + np.isin(sequence, doubled).astype(np.int64) - np.isin(sequence, lost)
            delivered = pa.array(np.repeat(np.arange(len(sequence)), copies))
            producer.begin()
            producer.produce(
                topic, keys_column.cast(pa.binary()).take(delivered), values.take(delivered), [("streamproof", b"1.%d.0" % batch)], 60
            )
            producer.commit(60)
            _progress(folder, batch, sequence, since, reached)
    writer.close()
    folder.journal.append(DriverReady(start=1))


def _values(sequence: np.ndarray, keys: np.ndarray) -> tuple[pa.Array, np.ndarray]:
    """The values of these records as an Arrow array, and the checksums of their keys and payloads. ``keys`` are the keys' numbers."""
    from streamproof.evidence.identities import crc32s  # not where it is measured: what is compiled takes memory

    count = len(sequence)
    head = b'{"id":"0000-000000000000-%08x-00000000","payload":' % len(PAYLOAD)
    rows = np.tile(np.frombuffer(head + PAYLOAD + b"}", np.uint8), (count, 1))
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    number = len(head) + PAYLOAD.index(b"0000000000")
    rows[:, number : number + 10] = digits[sequence[:, None] // 10 ** np.arange(9, -1, -1) % 10]
    rows[:, 12:24] = digits[sequence[:, None] >> 4 * np.arange(11, -1, -1) & 15]
    width = rows.shape[1]
    of_keys = np.array([identity.checksum(b"k%d" % number, b"") for number in range(KEYS)])
    crc = crc32s(rows.ravel(), np.arange(count) * width + len(head), np.full(count, len(PAYLOAD)), of_keys[keys])
    rows[:, 34:42] = digits[crc.astype(np.int64)[:, None] >> 4 * np.arange(7, -1, -1) & 15]
    offsets = pa.py_buffer((np.arange(count + 1) * width).astype(np.int32))
    return pa.Array.from_buffers(pa.binary(), count, [None, offsets, pa.py_buffer(rows)]), crc


def _sent_at(sequence: np.ndarray) -> np.ndarray:
    return BEGUN_MS + sequence // PER_MS


def _progress(folder: RunFolder, batch: int, sequence: np.ndarray, since: np.ndarray, until: np.ndarray) -> None:
    line = {"batch": batch, "start": 1, "rows": len(sequence), "committed_at": datetime.now(UTC).isoformat(timespec="milliseconds")}
    begins, ends = ({str(number): int(end) for number, end in enumerate(offsets)} for offsets in (since, until))
    append_json_line(folder.progress, {**line, "from": begins, "until": ends})


# --- in the process that is measured ------------------------------------------------------------------------------------------------


def _drain_and_check(folder: RunFolder, bootstrap: str, topic: str) -> dict[str, Any]:
    from streamproof.sinks.kafka.drain import drain

    begun = time.monotonic()
    drained = drain(folder, bootstrap, topic, LIMIT_S)
    read = time.monotonic() - begun
    assert drained["complete"], drained["reason"]
    folder.source.write_text(json.dumps({"end_offsets": {}}))
    manifest.write(folder)
    records_found = _check(folder)["found"]
    return {"seconds": time.monotonic() - begun, "found": records_found, "more": {"drain_s": round(read, 2)}}


def _check(folder: RunFolder, *_: str, promises: frozenset[Promise] = frozenset(), by_suites: bool = False) -> dict[str, Any]:
    begun = time.monotonic()
    spec = RunSpec("bench", "bench", "kafka_to_kafka", "two_phase_commit", Guarantee.EXACTLY_ONCE, (), (), 1, promises=promises)
    judgement = judge(folder, spec)
    verdict = judgement.verdict.to_json()
    assert verdict["outcome"] == "FAILED", verdict["reason"]
    counts = verdict["anomalies"]
    if by_suites:
        conflict = agreement.check(folder, suite_spec(spec), judgement.table)
        assert conflict is None, conflict
    names = {"lost": "LOST", "doubled": "DUPLICATED", "unknown": "PHANTOM", "damaged": "CORRUPTED"}
    return {"seconds": time.monotonic() - begun, "found": {name: counts[anomaly] for name, anomaly in names.items()}}


def _check_twice(folder: RunFolder, *_: str) -> dict[str, Any]:
    return _check(folder, by_suites=True)


def _check_promises(folder: RunFolder, *_: str) -> dict[str, Any]:
    return _check(folder, promises=frozenset(Promise))


def _duckdb(folder: RunFolder, *_: str) -> dict[str, Any]:
    import duckdb

    begun = time.monotonic()
    with duckdb.connect(config={"threads": 2, "temp_directory": str(folder.path / "duckdb")}) as connection:
        row = connection.execute(
            f"""SELECT count(*) FILTER (copies = 0 AND outcome = 'ACKED'), count(*) FILTER (copies > 1 AND outcome IS NOT NULL),
                       count(*) FILTER (outcome IS NULL), count(*) FILTER (damaged > 0)
                FROM (SELECT any_value(s.outcome) AS outcome, count(d.sequence) AS copies,
                             count(*) FILTER (d.crc IS DISTINCT FROM s.crc AND d.sequence IS NOT NULL AND s.sequence IS NOT NULL) AS damaged
                      FROM read_parquet('{folder.sent}/*.parquet') AS s FULL JOIN read_parquet('{folder.delivered}/*.parquet') AS d
                      ON s.producer = d.producer AND s.sequence = d.sequence
                      GROUP BY coalesce(s.producer, d.producer), coalesce(s.sequence, d.sequence))"""
        ).fetchone()
    return {"seconds": time.monotonic() - begun, "found": _named(row)}


def _polars(folder: RunFolder, *_: str) -> dict[str, Any]:
    os.environ["POLARS_MAX_THREADS"] = "2"
    import polars

    begun = time.monotonic()
    key = ["producer", "sequence"]
    sent = polars.scan_parquet(folder.sent / "*.parquet").select(*key, "crc", "outcome")
    delivered = polars.scan_parquet(folder.delivered / "*.parquet").select(*key, got=polars.col("crc"), here=polars.lit(1))
    joined = sent.join(delivered, on=key, how="full", coalesce=True)
    settled, here = polars.col("outcome").is_not_null(), polars.col("here").is_not_null()
    wrong = (here & settled & polars.col("got").ne_missing(polars.col("crc"))).sum()
    records = joined.group_by(key).agg(outcome=polars.col("outcome").first(), copies=here.sum(), wrong=wrong)
    copies = polars.col("copies")
    row = (
        records.select(
            (copies.eq(0) & polars.col("outcome").eq("ACKED")).sum().alias("lost"),
            (copies.gt(1) & settled).sum().alias("doubled"),
            (~settled).sum().alias("unknown"),
            polars.col("wrong").gt(0).sum().alias("damaged"),
        )
        .collect(engine="streaming")
        .row(0)
    )
    return {"seconds": time.monotonic() - begun, "found": _named(row)}


def _spark(folder: RunFolder, *_: str) -> dict[str, Any]:
    """The time counts from when the session is up."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    quiet = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "4g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }
    builder = SparkSession.builder.master("local[2]").config("spark.local.dir", str(folder.path / "spark"))
    for name, value in quiet.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.range(1).count()
    begun = time.monotonic()
    spark.read.parquet(f"{folder.sent}/*.parquet").createOrReplaceTempView("sent")
    spark.read.parquet(f"{folder.delivered}/*.parquet").createOrReplaceTempView("delivered")
    row = spark.sql(
        """SELECT count_if(copies = 0 AND outcome = 'ACKED'), count_if(copies > 1 AND outcome IS NOT NULL),
                  count_if(outcome IS NULL), count_if(damaged > 0)
           FROM (SELECT any_value(s.outcome) AS outcome, count(d.sequence) AS copies,
                        count_if(NOT d.crc <=> s.crc AND d.sequence IS NOT NULL AND s.sequence IS NOT NULL) AS damaged
                 FROM sent AS s FULL OUTER JOIN delivered AS d ON s.producer = d.producer AND s.sequence = d.sequence
                 GROUP BY coalesce(s.producer, d.producer), coalesce(s.sequence, d.sequence))"""
    ).collect()[0]
    seconds = time.monotonic() - begun
    spark.stop()
    return {"seconds": seconds, "found": _named(row)}


def _named(row: Any) -> dict[str, int]:
    return dict(zip(("lost", "doubled", "unknown", "damaged"), (int(count) for count in row), strict=True))


MEASURES: dict[str, Callable[[RunFolder, str, str], dict[str, Any]]] = {
    "whole": _drain_and_check,
    "check": _check,
    "promises": _check_promises,
    "suites": _check_twice,
    "duckdb": _duckdb,
    "polars": _polars,
    "spark": _spark,
}


# --- what is told -------------------------------------------------------------------------------------------------------------------


def _figures(results: dict[tuple[str, int], Measured]) -> Iterator[dict[str, Any]]:
    for (who, size), measured in results.items():
        name, peer = f"{NAMES[who]}, {size // 1_000_000} M records", PEERS.get(who)
        other = results.get((peer, size)) if peer else None
        rate = measured.records_per_s
        ratio = round(rate / other.records_per_s, 3) if rate and other is not None and other.records_per_s else None
        yield {
            "name": name,
            "value": round(rate) if rate else None,
            "unit": "records/s",
            "peer": NAMES[peer] if peer else None,
            "ratio": ratio,
        }
        lighter = round(measured.mib / other.mib, 3) if other is not None and other.mib else None
        yield {
            "name": f"{name}, memory",
            "value": round(measured.mib),
            "unit": "MiB",
            "peer": NAMES[peer] if peer else None,
            "ratio": lighter,
        }


def _print(results: dict[tuple[str, int], Measured], sizes: list[int]) -> None:
    shown = [size for size in sizes if any(of == size for _, of in results)]
    print("| | " + " | ".join(f"{size // 1_000_000} M: records/s | MiB" for size in shown) + " |")
    print("|---|" + "---:|---:|" * len(shown))
    for who, name in NAMES.items():
        cells = []
        for size in shown:
            measured = results.get((who, size))
            cells.append(f"{measured.records_per_s:,.0f} | {measured.mib:,.0f}" if measured and measured.records_per_s else " | ")
        print(f"| {name} | " + " | ".join(cells) + " |")
    for size in shown:
        one, other = results.get(("whole", size)), results.get(("consumer", size))
        if one and other and one.records_per_s and other.records_per_s:
            print(f"{size // 1_000_000} M: drain and check at {one.records_per_s / other.records_per_s:.2f} of ConsumerPerformance")


def _draw(results: dict[tuple[str, int], Measured], path: Path) -> None:
    import altair

    rows = [
        {"records": measured.records, "who": NAMES[who], "records a second": measured.records_per_s, "MiB": measured.mib}
        for (who, _), measured in results.items()
        if measured.records_per_s
    ]
    base = altair.Chart(altair.Data(values=rows)).mark_line(point=True)
    sizes = sorted({measured.records for measured in results.values()})
    x = altair.X("records:Q", scale=altair.Scale(type="log"), title="records", axis=altair.Axis(values=sizes, format="~s"))
    color = altair.Color("who:N", title=None, sort=list(NAMES.values()))
    speed = base.encode(x, altair.Y("records a second:Q", scale=altair.Scale(type="log"), axis=altair.Axis(format="~s")), color)
    memory = base.encode(x, altair.Y("MiB:Q", scale=altair.Scale(type="log"), title="MiB resident"), color)
    size = {"width": 330, "height": 280}
    altair.hconcat(speed.properties(title="speed", **size), memory.properties(title="memory", **size)).save(str(path))


if __name__ == "__main__":
    sys.exit(main())
