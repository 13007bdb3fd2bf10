"""The survey of ``delivery.survey`` as a Spark job, for histories that are more than one machine should read.

It reads the same Parquet files and comes to the same: counts, moments, and the suspects with all that is known of them, which are
collected and judged by the same checkers. So what it says is what the local check says, blame and all. What grows with the histories is
done by Spark: a join of each identity's send with its copies, and windows and joins for what was promised beside.

What a micro-batch read, and when it had reported so, is looked up with :class:`delivery.band.Due` in Python workers: they need this
project's ``delivery`` package, which is shipped to them, and pyarrow and numpy, which every PySpark environment has.

The session must see the run's folder under the same path on every machine.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import delivery
from delivery import history, recovery
from delivery.anomaly import Anomaly
from delivery.band import Due
from delivery.checker import PartitionCount, Reconciliation, reconcile
from delivery.columns import flags, integers
from delivery.folder import RunFolder, read_json_lines
from delivery.history import DELIVERED, SENT
from delivery.matching import match
from delivery.outcome import Outcome
from delivery.recovery import Stamps
from delivery.survey import Survey

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SENDS = """
    SELECT producer, sequence, partition, offset AS place, key, crc, outcome, unix_millis(sent_at) AS sent_at FROM sent"""
_INTENDED = """
    SELECT producer, sequence, NULL, NULL, NULL, NULL, 'INDETERMINATE', NULL
    FROM (SELECT producer, explode(sequence(first, first + count - 1)) AS sequence FROM intents WHERE count > 0) AS intended
    LEFT ANTI JOIN sent USING (producer, sequence)"""
_COPIES = """
    SELECT producer, sequence, crc, partition AS output, offset AS position, batch, start, unix_millis(delivered_at) AS at
    FROM delivered WHERE producer IS NOT NULL AND sequence IS NOT NULL"""
_SETTLED = """
    SELECT sends.*, low, high, first,
           coalesce(copies, 0) AS copies, coalesce(timed, 0) AS timed, coalesce(intact, 0) AS intact
    FROM sends LEFT JOIN (
        SELECT producer, sequence, min(crc) AS low, max(crc) AS high, min(at) AS first,
               count(*) AS copies, count(at) AS timed, count(crc) AS intact
        FROM copies GROUP BY producer, sequence
    ) USING (producer, sequence)"""
_SUSPECTS = """
    SELECT producer, sequence FROM settled
    WHERE copies > 1 OR (outcome = 'ACKED' AND copies = 0) OR (outcome = 'REJECTED' AND copies > 0)
       OR (copies > 0 AND (intact < copies OR low <> crc OR high <> crc)) OR timed < copies OR late
    UNION ALL
    SELECT producer, sequence FROM sends GROUP BY producer, sequence HAVING count(*) > 1"""
_PLACED = """
    SELECT key, partition, place, output, min(position) AS position, producer, sequence
    FROM sends JOIN copies USING (producer, sequence) WHERE key IS NOT NULL AND place IS NOT NULL
    GROUP BY key, partition, place, output, producer, sequence"""
_REORDERED = """
    WITH counted AS (
        SELECT key, partition, output, row_number() OVER (PARTITION BY key, partition ORDER BY count(*) DESC, output) AS rank
        FROM placed GROUP BY key, partition, output
    ), at_home AS (
        SELECT *, max(place) OVER (PARTITION BY key, partition ORDER BY position ROWS UNBOUNDED PRECEDING) AS newest
        FROM placed LEFT SEMI JOIN (SELECT * FROM counted WHERE rank = 1) USING (key, partition, output)
    ), late AS (
        SELECT key, partition FROM at_home WHERE place < newest
        UNION
        SELECT key, partition FROM placed LEFT ANTI JOIN at_home USING (producer, sequence)
    )
    SELECT producer, sequence FROM sends LEFT SEMI JOIN late USING (key, partition)"""
_HELD = """
    SELECT DISTINCT start, copies.batch AS batch, producer, sequence, coalesce(settled.batch = copies.batch, false) AS due
    FROM copies JOIN settled USING (producer, sequence) WHERE start IS NOT NULL AND copies.batch IS NOT NULL"""
_TORN = """
    SELECT start, batch FROM (SELECT start, batch, count_if(due) AS held FROM held GROUP BY start, batch)
    JOIN (SELECT batch, count(*) AS read FROM settled WHERE batch >= 0 GROUP BY batch) USING (batch) WHERE held < read"""
_OF_TORN = """
    SELECT producer, sequence FROM settled LEFT SEMI JOIN torn USING (batch)
    UNION ALL
    SELECT producer, sequence FROM held LEFT SEMI JOIN torn USING (start, batch)"""
_ACCOUNTS = """
    SELECT coalesce(partition, -1),
           count_if(outcome = 'ACKED'), count_if(outcome NOT IN ('ACKED', 'REJECTED')), count_if(outcome = 'REJECTED'),
           sum(copies), count_if(outcome = 'ACKED' AND copies = 0), count_if(outcome <> 'REJECTED' AND copies > 1)
    FROM settled GROUP BY coalesce(partition, -1) ORDER BY 1"""
_WRITTEN = "SELECT first, count(*) FROM settled WHERE first IS NOT NULL GROUP BY first"
_WAITED = """
    SELECT sent_at, first, count(*) FROM settled
    WHERE first IS NOT NULL AND sent_at IS NOT NULL AND outcome = 'ACKED' GROUP BY sent_at, first"""
_SMALL_SENT = """
    SELECT {columns} FROM sent LEFT SEMI JOIN suspects USING (producer, sequence)
    UNION ALL
    SELECT {columns} FROM sent WHERE producer IS NULL OR sequence IS NULL"""
_SMALL_DELIVERED = """
    SELECT {columns} FROM delivered LEFT SEMI JOIN suspects USING (producer, sequence)
    UNION ALL
    SELECT {columns} FROM delivered LEFT ANTI JOIN sends USING (producer, sequence)"""
_SMALL_INTENDED = """
    SELECT producer, sequence FROM
        (SELECT number, producer, explode(sequence(first, first + count - 1)) AS sequence FROM intents WHERE count > 0) AS intended
    LEFT SEMI JOIN suspects USING (producer, sequence) LEFT ANTI JOIN sent USING (producer, sequence) ORDER BY number, sequence"""


@contextmanager
def session(master: str) -> Iterator[SparkSession]:
    """A session on ``master``, whose Python workers have the package ``delivery``."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    quiet = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "16", "spark.sql.session.timeZone": "UTC"}
    builder = SparkSession.builder.appName("streamproof check").master(master)
    for name, value in quiet.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    package = Path(delivery.__file__).parent
    with tempfile.TemporaryDirectory() as directory:
        spark.sparkContext.addPyFile(shutil.make_archive(f"{directory}/delivery", "zip", package.parent, package.name))
        try:
            yield spark
        finally:
            spark.stop()


def survey(
    spark: SparkSession, folder: RunFolder, asked: Collection[Anomaly], progress: Sequence[dict[str, Any]], ends: np.ndarray, kind: Stamps
) -> Survey:
    """What :func:`delivery.survey.survey` says. Raises EvidenceError when the evidence holds what no run writes."""
    _views(spark, folder)
    unsettled = _unsettled(spark)
    spark.sql(f"{_SENDS} UNION ALL {_INTENDED}" if unsettled else _SENDS).createOrReplaceTempView("sends")
    spark.sql(_COPIES).createOrReplaceTempView("copies")
    settled = _looked_up(spark.sql(_SETTLED), progress, ahead=Anomaly.AHEAD in asked).cache()
    settled.createOrReplaceTempView("settled")
    suspects = spark.sql(_SUSPECTS)
    if Anomaly.REORDERED in asked:
        spark.sql(_PLACED).createOrReplaceTempView("placed")
        suspects = suspects.union(spark.sql(_REORDERED))
    if Anomaly.TORN in asked:
        spark.sql(_HELD).createOrReplaceTempView("held")
        spark.sql(_TORN).createOrReplaceTempView("torn")
        suspects = suspects.union(spark.sql(_OF_TORN))
    suspects.distinct().cache().createOrReplaceTempView("suspects")
    sent, delivered = _collected(spark, _SMALL_SENT, SENT), _collected(spark, _SMALL_DELIVERED, DELIVERED)
    intended = spark.sql(_SMALL_INTENDED).collect() if unsettled else []
    producers, sequences = (np.array([row[at] for row in intended], np.int64) for at in (0, 1))
    evidence = history.evidence(folder, sent, delivered, (producers, sequences))
    matched = match(evidence.sent, evidence.delivered)
    accounts = tuple(PartitionCount(*(int(value) for value in row)) for row in spark.sql(_ACCOUNTS).collect())
    found = Reconciliation(
        reconcile(matched).findings,
        accounts,
        sum(account.acked for account in accounts),
        sum(account.indeterminate for account in accounts),
        sum(account.rejected for account in accounts),
        spark.table("delivered").count(),
    )
    written, records = _numbers(spark.sql(_WRITTEN), 2)
    at, first, waited = _numbers(spark.sql(_WAITED), 3)
    spark.catalog.clearCache()
    visible, shown = (times if kind is Stamps.VISIBLE else recovery.decided(times, ends) for times in (written, first))
    return Survey(evidence, matched, found, recovery.arranged(written, visible, records, at, shown, waited))


def _views(spark: SparkSession, folder: RunFolder) -> None:
    """``sent``, ``delivered`` and ``intents``, each with a row's place."""
    for name, directory, schema in (("sent", folder.sent, SENT), ("delivered", folder.delivered, DELIVERED)):
        paths = [f"file://{path}" for path in history.files(directory)]
        columns = ", ".join(f"CAST(NULL AS {_SQL.get(str(field.type), 'BIGINT')}) AS {field.name}" for field in schema)
        empty = f"SELECT {columns}, '' AS file, 0L AS row WHERE false"
        frame = (
            spark.read.parquet(*paths).selectExpr(*schema.names, "_metadata.file_path AS file", "_metadata.row_index AS row")
            if paths
            else None
        )
        (frame if frame is not None else spark.sql(empty)).createOrReplaceTempView(name)
    lines = [(number, line["producer"], line["first"], line["count"]) for number, line in enumerate(read_json_lines(folder.intents))]
    spark.createDataFrame(lines, "number LONG, producer INT, first LONG, count LONG").createOrReplaceTempView("intents")


_SQL = {"string": "STRING", "timestamp[ms, tz=UTC]": "TIMESTAMP"}


def _unsettled(spark: SparkSession) -> bool:
    """Whether more was intended than has a row."""
    intended = spark.sql("SELECT coalesce(sum(count), 0) FROM intents").collect()[0][0]
    return bool(intended > spark.table("sent").count())


def _looked_up(settled: DataFrame, progress: Sequence[dict[str, Any]], *, ahead: bool) -> DataFrame:
    """With two columns more: whether the first copy came after the earliest report, and which batch read an ACKED record."""
    from pyspark.sql.types import BooleanType, LongType, StructField, StructType

    due = Due(progress)

    def look(parts: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for part in parts:
            table = pa.Table.from_batches([part])
            partition, place, first = (integers(table[name]) for name in ("partition", "place", "first"))
            judged = flags(pc.equal(table["outcome"], Outcome.ACKED)) & (place >= 0)
            late = judged & (first >= 0) & due.behind(first, partition, place) if ahead else np.zeros(len(table), bool)
            batch = np.where(judged, due.batch(partition, place), -1)
            yield from table.append_column("late", pa.array(late)).append_column("batch", pa.array(batch)).to_batches()

    more = [StructField("late", BooleanType()), StructField("batch", LongType())]
    return settled.mapInArrow(look, StructType([*settled.schema.fields, *more]))


def _collected(spark: SparkSession, query: str, schema: pa.Schema) -> pa.Table:
    """The rows in the order of the files."""
    frame = spark.sql(query.format(columns=", ".join([*schema.names, "file", "row"]))).orderBy("file", "row")
    return frame.toArrow().select(schema.names).cast(schema)


def _numbers(frame: DataFrame, columns: int) -> tuple[np.ndarray, ...]:
    rows = frame.toArrow()
    return tuple(integers(rows.column(number)) for number in range(columns))
