"""Speed of the sinks: each strategy against Spark's own sink of the same system, in turn. ``python -m benchmarks.sinks``.

One Spark session, one input topic per size of batch, the same rows for every sink. Sinks take turns, round by round, because the machine's
mood changes more between minutes than a sink differs from its peer: ratios are taken within a round, and their median is reported.

    250,000 rows a batch   throughput: records/s, ms per batch, ratio to the peer
      5,000 rows a batch   the same where the fixed cost per batch matters; a tenth of the records
         40 rows a batch   the fixed cost per batch: ms of its trigger, and ms above the peer's

The peer of a Kafka strategy is ``checkpoint``, which is Spark's Kafka sink as it comes (acks=all, idempotent, no compression: the defaults
of Kafka's Java client); the strategies compress neither. They write a header to each record, which it does not: a second peer,
``checkpoint_header``, is the same sink writing the same header. The peer of a PostgreSQL strategy is ``jdbc``, Spark's JDBC sink as it
comes, in ``foreachBatch``, into the same table; ``jdbc_tuned`` is the same with the options that make it fast (10,000 rows a statement
and ``reWriteBatchedInserts``). All clients are connected to the servers themselves, not through the proxy.

Of each query the first batch is left out (it plans and opens connections) and the last (its source waits half a second at the topic's
end, whatever the sink), and so are two first rounds that warm the JVMs. JVMs run without the testbed's quick-start flags, which cap their
speed. Prints a table and writes
``build/bench-sinks.json``: a list of {name, value, unit, peer, ratio}.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import psutil
import psycopg

from streamproof import settings
from streamproof.engines.spark import driver, kafka_to_kafka, spark_kafka
from streamproof.engines.spark import settings as spark_settings
from streamproof.engines.spark.job import SparkJob
from streamproof.engines.spark.registry import STRATEGIES
from streamproof.engines.spark.strategies.strategy import Strategy
from streamproof.evidence import identity
from streamproof.evidence.folder import RunFolder
from streamproof.sinks import outputs
from streamproof.sinks.postgres import tables
from streamproof.sinks.postgres.tables import Tables
from streamproof.testbed import embedded, install, java
from streamproof.testbed import spark as spark_connector
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.kafka import Cluster
from streamproof.verdict.guarantee import Guarantee

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

PARTITIONS = 4
WAIT_S = 600.0  # other work on the machine may leave little of it
WARM_UPS = 2
PEERS = {"kafka": ("checkpoint", "checkpoint_header"), "postgres": ("jdbc",)}
JDBC_DRIVER = "jdbc"  # its set in jars.lock


@dataclass(frozen=True)
class Size:
    """A size of micro-batch, and how many records are read in such batches; those of the first and the last are not measured."""

    batch: int
    records: int


@dataclass(frozen=True)
class Measured:
    """What one sink did with one size in one round: the trigger time of each batch but the first and the last, and their mean rows; and the
    processor time of the driver and the executors for all records."""

    rows: float
    trigger_ms: list[int]
    cpu_s: float
    records: int

    @property
    def ms(self) -> float:
        return statistics.median(self.trigger_ms)

    @property
    def records_per_s(self) -> float:
        return self.rows * len(self.trigger_ms) / (sum(self.trigger_ms) / 1000)

    @property
    def cpu_us(self) -> float:
        """Processor time of the job's processes for a record: other work on the machine changes it less than it changes the speed."""
        return self.cpu_s / self.records * 1e6


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--records", type=int, default=1_000_000, help="records measured in batches of 250,000 (default 1,000,000)")
    parser.add_argument("--rounds", type=int, default=3, help="how often each sink is measured (default 3)")
    parser.add_argument("--only", nargs="*", default=[], metavar="STRATEGY", help="these strategies, and their peers")
    parser.add_argument("--sizes", nargs="*", type=int, default=[250_000, 5_000, 40], metavar="ROWS", help="sizes of batch")
    parser.add_argument("--conf", nargs="*", default=[], metavar="KEY=VALUE", help="further Spark settings")
    options = parser.parse_args()
    sizes = [Size(rows, _records(rows, options.records)) for rows in options.sizes]
    contenders = _contenders(options.only)
    os.environ["STREAMPROOF_CACHE"] = str(settings.cache())
    os.environ["STREAMPROOF_HOME"] = str(settings.home() / "bench")
    java.QUICK_START.clear()  # of this process's testbed and driver: they cap what a JVM can do
    embedded.down()
    shutil.rmtree(settings.home(), ignore_errors=True)  # an old checkpoint would say that everything was read
    try:
        testbed = embedded.up(_say)
        os.environ.update(spark_connector.driver_environment(testbed.spark_properties))
        results = _measure(testbed, contenders, sizes, options.rounds, dict(pair.split("=", 1) for pair in options.conf))
    finally:
        embedded.down()
    figures = list(_figures(results, sizes))
    _print(figures)
    Path("build").mkdir(exist_ok=True)
    Path("build/bench-sinks.json").write_text(json.dumps(figures, indent=1) + "\n")
    return 0


def _say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)


def _records(rows: int, records: int) -> int:
    """All records in batches of 250,000; a tenth, or 30 batches, where batches are small and their number is what takes the time."""
    return 2 * rows + (records if rows >= 100_000 else min(records // 10, rows * 30))


def _contenders(only: list[str]) -> list[Strategy]:
    """The strategies asked for with their peers, the peer of each sink first."""
    strategies = [strategy for strategy in (*BESIDE, *STRATEGIES.values()) if strategy.sink in PEERS]
    unknown = set(only) - {strategy.name for strategy in strategies}
    if unknown:
        raise SystemExit(
            f"--only: no strategy {', '.join(sorted(unknown))}; there are: {', '.join(strategy.name for strategy in strategies)}"
        )
    sinks = {strategy.sink for strategy in strategies if not only or strategy.name in only}
    chosen = [s for s in strategies if s.sink in sinks and (not only or s.name in only or s in BESIDE or s.name in PEERS[s.sink])]
    return sorted(chosen, key=lambda strategy: (strategy.sink, strategy.name not in PEERS[strategy.sink]))


class CheckpointHeader(Strategy):
    """Spark's own Kafka sink writing the very records that the strategies write: with the header that tells where a record comes from."""

    name = "checkpoint_header"
    summary = "Spark's own Kafka sink, with a header"
    sink = "kafka"
    guarantee = Guarantee.AT_LEAST_ONCE
    failpoints = ()

    def start(self, frame: DataFrame, job: SparkJob) -> StreamingQuery:
        header = f"array(struct('streamproof' AS key, CAST('{job.start}.0.0' AS BINARY) AS value)) AS headers"
        return (
            frame.selectExpr("key", "value", header)
            .writeStream.format("kafka")
            .queryName(job.name)
            .options(**spark_kafka.address(job))
            .option("topic", job.output_topic)
            .option("includeHeaders", "true")
            .option("checkpointLocation", str(job.checkpoint()))
            .start()
        )


class JdbcAppend(Strategy):
    """The peer of the PostgreSQL strategies: what a job would do without one of them."""

    name = "jdbc"
    summary = "Spark's JDBC sink in foreachBatch"
    url_options = ""
    options: ClassVar[dict[str, str]] = {}
    sink = "postgres"
    guarantee = Guarantee.AT_LEAST_ONCE
    failpoints = ()

    def start(self, frame: DataFrame, job: SparkJob) -> StreamingQuery:
        server = psycopg.conninfo.conninfo_to_dict(job.postgres)
        table = Tables(job.name)

        def deliver(batch: DataFrame, number: int) -> None:
            origin = (f"{job.start} AS start", f"CAST({number} AS BIGINT) AS batch", "0 AS attempt")
            (
                batch.selectExpr(*origin, "source_partition", "source_offset", "key", "value")
                .write.format("jdbc")
                .option("driver", "org.postgresql.Driver")
                .option("url", f"jdbc:postgresql://{server['host']}:{server['port']}/{server['dbname']}{self.url_options}")
                .option("user", server["user"])
                .option("password", Path(str(server["passfile"])).read_text().strip().rsplit(":", 1)[1])
                .option("dbtable", f'"{table.schema}"."delivered"')
                .options(**self.options)
                .mode("append")
                .save()
            )

        return (
            frame.writeStream.foreachBatch(deliver).queryName(job.name).option("checkpointLocation", f"file://{job.checkpoint()}").start()
        )


class JdbcTuned(JdbcAppend):
    """The same by somebody who knows which options make it fast."""

    name = "jdbc_tuned"
    url_options = "?reWriteBatchedInserts=true"
    options: ClassVar[dict[str, str]] = {"batchsize": "10000"}


BESIDE: tuple[Strategy, ...] = (CheckpointHeader(), JdbcAppend(), JdbcTuned())


# --- measuring --------------------------------------------------------------------------------------------------------------------

Found = dict[tuple[str, int], list[Measured]]


def _measure(testbed: Testbed, contenders: list[Strategy], sizes: list[Size], rounds: int, conf: dict[str, str]) -> Found:
    cluster = Cluster(testbed.direct_kafka)
    for size in sizes:
        cluster.create_topics({_input(size): PARTITIONS})
        _say(f"{size.records} records into {_input(size)}")
        _fill(testbed.direct_kafka, _input(size), size.records)
    results: Found = {(strategy.name, size.batch): [] for size in sizes for strategy in contenders}
    with _session(testbed, conf) as spark:
        for number in range(1 - WARM_UPS, rounds + 1):
            for size in sizes:
                for strategy in contenders:
                    job = _job(testbed, strategy, size, number)
                    output = outputs.of(job)
                    output.create(job, testbed, PARTITIONS)
                    result = _run(spark, strategy, job, size)
                    _check(testbed, strategy, job, size)
                    output.delete(job, testbed)
                    _say(
                        f"{f'round {number} of {rounds}' if number > 0 else 'warming up'}: {strategy.name}, {size.batch} rows a batch: "
                        f"{result.records_per_s:.0f} records/s, {result.ms:.0f} ms a batch, {result.cpu_us:.2f} µs of processor a record"
                    )
                    if number > 0:
                        results[strategy.name, size.batch].append(result)
    return results


def _input(size: Size) -> str:
    return f"bench.in.{size.batch}"


def _fill(bootstrap: str, topic: str, records: int) -> None:
    """Records of 93 bytes, evenly over the partitions."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 20, "queue.buffering.max.messages": 500_000})
    for number in range(records):
        value = identity.encode(0, number, b'{"n":%d,"amount":%d}' % (10_000_000 + number, 10_000_000 + number))
        while True:
            try:
                producer.produce(topic, value, b"k%d" % (number % 1000), number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(WAIT_S):
        raise RuntimeError(f"{topic} could not be filled")


def _job(testbed: Testbed, strategy: Strategy, size: Size, number: int) -> SparkJob:
    name = f"bench-{strategy.name}-{size.batch}-{number}"
    folder = RunFolder.create(settings.home() / "runs" / name)
    job = SparkJob(
        engine="spark",
        sink=strategy.sink,
        pipeline=kafka_to_kafka.NAME,
        strategy=strategy.name,
        name=name,
        folder=str(folder.path),
        bootstrap=testbed.direct_kafka,
        input_topic=_input(size),
        output_topic=f"{name}.out",
        batch_records=size.batch,
        transaction_timeout_ms=60_000,
        master=testbed.spark_master,
        spark={},
        postgres=testbed.direct_postgres,
    )
    job.write()
    return replace(job, start=1)


@contextmanager
def _session(testbed: Testbed, conf: dict[str, str]) -> Iterator[SparkSession]:
    """One session for all sinks, as a run's driver has it, but with memory for large batches and JVMs at their full speed."""
    memory: dict[str, str] = {"spark.driver.memory": "1g", "spark.executor.memory": "1500m"}
    folder = RunFolder.create(settings.home() / "runs" / "bench")
    install.install_jars(_say)
    jars = ":".join([spark_connector.connector_class_path(), *map(str, (settings.cache() / "jars" / JDBC_DRIVER).glob("*.jar"))])
    memory |= {"spark.driver.extraClassPath": jars, "spark.executor.extraClassPath": jars}
    settings_of_spark = {
        **spark_settings.of_run(folder.path, STRATEGIES["checkpoint"], state=None),
        **memory,
        "spark.sql.streaming.numRecentProgressUpdates": "10000",
        **conf,
    }
    job = SparkJob(
        engine="spark",
        sink="kafka",
        pipeline="",
        strategy="",
        name="bench-sinks",
        folder=str(folder.path),
        bootstrap="",
        input_topic="",
        output_topic="",
        batch_records=0,
        transaction_timeout_ms=0,
        master=testbed.spark_master,
        spark=settings_of_spark,
    )
    spark = driver.session(job)
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


def _run(spark: SparkSession, strategy: Strategy, job: SparkJob, size: Size) -> Measured:
    """Run the job until it has read its input."""
    strategy.recover(job)
    frame = kafka_to_kafka.transform(kafka_to_kafka.read(spark, job, strategy.starting_offsets(job)))
    begun = _cpu_s(spark)
    query = strategy.start(frame, job)
    deadline = time.monotonic() + WAIT_S
    try:
        while sum(report.numInputRows for report in query.recentProgress) < size.records:
            if query.exception() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{job.name} did not read its input within {WAIT_S:.0f} s: {query.exception()}")
            time.sleep(0.2)
        reports: list[Any] = [report for report in query.recentProgress if report.numInputRows]
    finally:
        query.stop()
    strategy.recover(job)
    later = reports[1:-1]
    rows = statistics.mean(report.numInputRows for report in later)
    return Measured(rows, [report.durationMs["triggerExecution"] for report in later], _cpu_s(spark) - begun, size.records)


def _cpu_s(spark: SparkSession) -> float:
    """Processor time so far of the session's processes: the driver's Python and JVM, the executors and their Python workers."""
    own = psutil.Process()
    executors = spark_connector.executor_processes(spark.sparkContext.applicationId).values()
    processes = [own, *own.children(recursive=True)]
    processes += [process for executor in executors for process in (executor, *executor.children(recursive=True))]
    total = 0.0
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def _check(testbed: Testbed, strategy: Strategy, job: SparkJob, size: Size) -> None:
    """A sink that did not deliver is no measurement. Transactions of Kafka leave control records: more offsets than records are right."""
    if strategy.sink == "kafka":
        visible = sum(Cluster(testbed.direct_kafka).end_offsets(job.output_topic, committed=True).values())
    else:
        with tables.connect(testbed.direct_postgres) as connection:
            visible = connection.execute(Tables(job.name).named("SELECT count(*) FROM {delivered}")).fetchone()[0]
    if visible < size.records:
        raise RuntimeError(f"{job.name}: {visible} of {size.records} records are visible")


# --- reporting --------------------------------------------------------------------------------------------------------------------


def _figures(results: Found, sizes: list[Size]) -> Iterator[dict[str, Any]]:
    sinks = {strategy.name: strategy.sink for strategy in (*BESIDE, *STRATEGIES.values())}
    for (name, batch), measured in results.items():
        label, peers = f"{name}, {batch} rows a batch", PEERS[sinks[name]]
        rate, ms = (
            round(statistics.median(session.records_per_s for session in measured)),
            round(statistics.median(session.ms for session in measured)),
        )
        cpu = round(statistics.median(session.cpu_us for session in measured), 2)
        if name == peers[0]:
            yield {"name": label, "value": rate, "unit": "records/s", "peer": None, "ratio": None}
            yield {"name": label, "value": ms, "unit": "ms per batch", "peer": None, "ratio": None}
            yield {"name": label, "value": cpu, "unit": "µs of processor time a record", "peer": None, "ratio": None}
            continue
        for peer in (other for other in peers if other != name):
            pairs = list(zip(measured, results[peer, batch], strict=True))
            about = {"peer": peer, "ratio": round(statistics.median(mine.records_per_s / other.records_per_s for mine, other in pairs), 3)}
            yield {"name": label, "value": rate, "unit": "records/s", **about}
            yield {"name": label, "value": ms, "unit": "ms per batch", **about}
            costs = round(statistics.median(mine.cpu_us / other.cpu_us for mine, other in pairs), 3)
            yield {"name": label, "value": cpu, "unit": "µs of processor time a record", "peer": peer, "ratio": costs}
            if batch == min(size.batch for size in sizes):
                above = round(statistics.median(mine.ms - other.ms for mine, other in pairs))
                yield {"name": f"{name}, fixed cost", "value": above, "unit": "ms per batch above the peer", **about}


def _print(figures: Iterable[dict[str, Any]]) -> None:
    for figure in figures:
        ratio = "" if figure["ratio"] is None else f"{figure['ratio']:8.2f} of {figure['peer']}"
        print(f"{figure['name']:>42}  {figure['value']:>9}  {figure['unit']:<28}{ratio}")


if __name__ == "__main__":
    sys.exit(main())
