"""The scan of ``streamproof.verdict.scan.scan`` as a Spark job, for histories too large for one machine.

It reads the same Parquet files and gives the same result: counts, moments, and the candidates with all their evidence. Only these come
back to the driver, and the same checkers judge them, so the verdict and its blame are those of the local scan. Spark does all work that
grows with the histories:

    sends       what was sent, and what was intended and has no row
    copies      what was delivered and has an identity
    settled     for each identity its send, if it has one, and a summary of its copies: all counts come from here
    candidates  the identities that the fast pass could not clear, and with them
                REORDERED     all records with a key, from one source partition, of which one came late or to another output partition
                TORN          all records of a batch, and of a write set of it, which lacks one of them
                OFFSET_AHEAD  those whose first copy is later than the earliest report, of any start, that passed them over

A record's place in the source is one number here: its partition and its offset. Ranges of places say which batch read a record and which
report passed it over. Spark can join by equality only. So the axis is cut into bins, each as long as a range on average, and each range has
a row for every bin that it touches: on average at most three rows for a range, and few matches for a record.

All of it is SQL. The machines that run it need no Python; they must see the run's folder under the same path.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamproof.evidence import histories
from streamproof.evidence.clock import NEVER, Clock
from streamproof.evidence.columns import integers
from streamproof.evidence.expected import ONCE
from streamproof.evidence.folder import EvidenceError, RunFolder, read_json_lines
from streamproof.evidence.histories import DELIVERED, SENT
from streamproof.verdict.anomaly import Anomaly
from streamproof.verdict.checks.atomicity import ranges
from streamproof.verdict.checks.commits import PARTITION_BITS, passed
from streamproof.verdict.checks.matching import match
from streamproof.verdict.checks.records import PartitionCount, Reconciliation, reconcile
from streamproof.verdict.scan.scan import NONE, Identities, Scan
from streamproof.verdict.timing import recovery
from streamproof.verdict.timing.recovery import Stamps

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ROWS_A_TASK = 1 << 18
_LONGEST_INTENT = 1 << 16  # Spark makes an array of each before it makes rows
_FEW = 1 << 18
Ranges = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Where each begins, what it ends before, and what is so in it."""
_TYPES = {
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.uint32(): "BIGINT",
    pa.string(): "STRING",
    SENT.field("sent_at").type: "TIMESTAMP",
}

_INTENDED = """
    SELECT number, producer, sequence
    FROM (SELECT number, producer, explode(sequence(first, first + count - 1)) AS sequence FROM intents WHERE count > 0)
    LEFT ANTI JOIN sent USING (producer, sequence)"""
_SENDS = f"""
    SELECT producer, sequence, coalesce(partition, -1) AS partition,
           shiftleft(CAST(partition AS BIGINT), {PARTITION_BITS}) + offset AS place, key, crc,
           coalesce(outcome = 'ACKED', false) AS acked, coalesce(outcome = 'REJECTED', false) AS rejected,
           unix_millis(sent_at) AS sent_at
    FROM sent
    UNION ALL
    SELECT producer, sequence, -1, NULL, NULL, NULL, false, false, NULL FROM intended"""
_COPIES = """
    SELECT producer, sequence, crc, partition AS output, offset AS position, batch, start,
           CASE WHEN unix_millis(delivered_at) BETWEEN {since} AND {until} THEN unix_millis(delivered_at) END AS at
    FROM delivered WHERE producer IS NOT NULL AND sequence IS NOT NULL"""
_SETTLED = """
    SELECT producer, sequence, count(acked) AS sends, max(partition) AS partition, max(place) AS place, max(acked) AS acked,
           max(rejected) AS rejected, max(sent_at) AS sent_at, max(due) AS due,
           sum(copy) AS copies, min(at) AS at, count(at) AS timed, min(crc) AS low, max(crc) AS high, count(crc) AS intact
    FROM (
        SELECT producer, sequence, partition, place, acked, rejected, sent_at, crc AS due, 0 AS copy, NULL AS at, NULL AS crc FROM sends
        UNION ALL
        SELECT producer, sequence, NULL, NULL, NULL, NULL, NULL, NULL, 1, at, crc FROM copies
        DISTRIBUTE BY producer, sequence
    ) GROUP BY producer, sequence"""

_CANDIDATES = """
    SELECT producer, sequence FROM settled
    WHERE sends <> 1 OR copies > 1 OR (acked AND copies = 0) OR (rejected AND copies > 0)
       OR timed < copies OR intact < copies OR low <> due OR high <> due"""
_OFFSET_AHEAD = """
    SELECT producer, sequence FROM settled JOIN passed ON {within} WHERE acked AND (at > passed.value OR {doubtful})"""
_PLACED = """
    SELECT key, partition, place, output, min(position) AS position, producer, sequence
    FROM sends JOIN copies USING (producer, sequence) WHERE key IS NOT NULL AND place IS NOT NULL
    GROUP BY key, partition, place, output, producer, sequence"""
_REORDERED = """
    WITH dominant AS (
        SELECT key, partition, output, row_number() OVER (PARTITION BY key, partition ORDER BY count(*) DESC, output) AS rank
        FROM placed GROUP BY key, partition, output
    ), at_dominant AS (
        SELECT *, max(place) OVER (PARTITION BY key, partition ORDER BY position) AS newest
        FROM placed LEFT SEMI JOIN (SELECT * FROM dominant WHERE rank = 1) USING (key, partition, output)
    ), troubled AS (
        SELECT key, partition FROM at_dominant WHERE place < newest
        UNION
        SELECT key, partition FROM placed LEFT ANTI JOIN at_dominant USING (producer, sequence)
    )
    SELECT producer, sequence FROM sends LEFT SEMI JOIN troubled USING (key, partition)"""
_READ = """
    SELECT reads.value AS batch, producer, sequence FROM sends JOIN reads ON {within} WHERE acked"""
_HELD = """
    SELECT DISTINCT start, batch, producer, sequence FROM copies LEFT SEMI JOIN sends USING (producer, sequence)
    WHERE start IS NOT NULL AND batch IS NOT NULL"""
_TORN = """
    SELECT start, batch
    FROM (SELECT DISTINCT start, batch FROM held)
    JOIN (SELECT batch, count(*) AS due FROM read GROUP BY batch) USING (batch)
    LEFT JOIN (SELECT start, batch, count(*) AS there FROM held JOIN read USING (batch, producer, sequence) GROUP BY start, batch)
        USING (start, batch)
    WHERE coalesce(there, 0) < due"""
_OF_TORN = """
    SELECT /*+ BROADCAST(torn) */ producer, sequence FROM read LEFT SEMI JOIN torn USING (batch)
    UNION ALL
    SELECT /*+ BROADCAST(torn) */ producer, sequence FROM held LEFT SEMI JOIN torn USING (start, batch)"""

_SENT_CANDIDATES = """
    SELECT {columns} FROM sent LEFT SEMI JOIN candidates USING (producer, sequence)
    UNION ALL
    SELECT {columns} FROM sent WHERE producer IS NULL OR sequence IS NULL"""
_DELIVERED_CANDIDATES = """
    SELECT {columns} FROM delivered LEFT SEMI JOIN candidates USING (producer, sequence)
    UNION ALL
    SELECT {columns} FROM delivered WHERE producer IS NULL OR sequence IS NULL"""
_INTENDED_CANDIDATES = """
    SELECT number, producer, sequence FROM intended LEFT SEMI JOIN candidates USING (producer, sequence)"""

_ACCOUNTS = """
    SELECT partition, count_if(acked), count_if(NOT acked AND NOT rejected), count_if(rejected),
           sum(copies), count_if(acked AND copies = 0), count_if(NOT rejected AND copies > 1)
    FROM settled WHERE sends > 0 GROUP BY partition"""
_WRITTEN = "SELECT at, count(*) FROM settled WHERE sends > 0 AND at IS NOT NULL AND timed = copies GROUP BY at"
_UNTIMED = "SELECT count(*) FROM settled WHERE sends > 0 AND timed < copies"
_WAITED = """
    SELECT sent_at, coalesce(ended.value, at) AS shown, sum(records)
    FROM (
        SELECT coalesce(sent_at, -1) AS sent_at, at, greatest(at, {earliest}) AS place, count(*) AS records FROM settled
        WHERE acked AND at IS NOT NULL AND timed = copies GROUP BY sent_at, at
    ) LEFT JOIN ended ON {within}
    GROUP BY sent_at, shown"""


def scan_histories(
    spark: SparkSession,
    folder: RunFolder,
    asked: Collection[Anomaly],
    progress: Sequence[dict[str, Any]],
    ends: np.ndarray,
    kind: Stamps,
    also: Identities = NONE,
) -> Scan:
    """The result of :func:`streamproof.verdict.scan.scan.scan_histories`. Raises EvidenceError when a file cannot be read, or holds
    what no run writes."""
    rows = {name: _view(spark, name, folder, schema) for name, schema in (("sent", SENT), ("delivered", DELIVERED))}
    intents = np.fromiter(_intents(folder), np.dtype((np.int64, 4)))
    intended = int(intents[:, 3].sum())
    _plan_for(spark, sum(rows.values()) + intended)
    # Like the local scan: when as many were sent as intended, the intents are not expanded.
    unsettled = intents if intended > rows["sent"] else intents[:0]
    _table(spark, **dict(zip(("number", "producer", "first", "count"), unsettled.T, strict=True))).createOrReplaceTempView("intents")
    try:
        clock = Clock.of(folder)
        copies = _COPIES.format(since=clock.since + 1, until=clock.until)  # Spark does not read the smallest number there is
        for name, query in (("intended", _INTENDED), ("sends", _SENDS), ("copies", copies)):
            spark.sql(query).createOrReplaceTempView(name)
        spark.sql(_SETTLED).cache().createOrReplaceTempView("settled")
        producers, sequences = also
        others = _table(spark, producer=producers, sequence=sequences)
        candidates = _candidates(spark, asked, progress, clock).union(others).distinct().cache()
        _sent_to_all(candidates, candidates.count()).createOrReplaceTempView("candidates")
        number, producer, sequence = _numbers(spark, _INTENDED_CANDIDATES)
        order = np.lexsort((sequence, number))
        sent, delivered = _in_order(spark, _SENT_CANDIDATES, SENT), _in_order(spark, _DELIVERED_CANDIDATES, DELIVERED)
        evidence = histories.evidence(folder, sent, delivered, (producer[order], sequence[order]))
        matched = match(evidence.sent, evidence.delivered)
        accounts = tuple(
            PartitionCount(*account) for account in sorted(zip(*map(np.ndarray.tolist, _numbers(spark, _ACCOUNTS)), strict=True))
        )
        reconciliation = Reconciliation(
            reconcile(matched, ONCE).findings,
            accounts,
            sum(account.acked for account in accounts),
            sum(account.indeterminate for account in accounts),
            sum(account.rejected for account in accounts),
            rows["delivered"],
        )
        return Scan(evidence, matched, reconciliation, _flow(spark, np.zeros(0, np.int64) if kind is Stamps.VISIBLE else ends))
    finally:
        spark.catalog.clearCache()


def _plan_for(spark: SparkSession, rows: int) -> None:
    """Settings for histories of so many rows. Parts that fit into the memory of a task, however many cores there are; and nothing is sent
    to every machine because its file is small: a record takes some five bytes there, and twenty times that in memory."""
    spark.conf.set("spark.sql.shuffle.partitions", str(max(2, rows // _ROWS_A_TASK)))
    spark.conf.set("spark.sql.adaptive.coalescePartitions.enabled", "false")
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    spark.conf.set("spark.sql.adaptive.autoBroadcastJoinThreshold", "10MB")  # of what was counted, not guessed


def _sent_to_all(frame: DataFrame, rows: int) -> DataFrame:
    """Few rows go to every machine, so that what they are joined with need not be moved."""
    from pyspark.sql import functions as f

    return f.broadcast(frame) if rows <= _FEW else frame


# --- the histories ----------------------------------------------------------------------------------------------------------------


def _view(spark: SparkSession, name: str, folder: RunFolder, schema: pa.Schema) -> int:
    """A view of the files with the place of each row in them; how many rows it has."""
    paths = histories.files(folder.path / name)
    rows = sum(_rows(path, schema) for path in paths)
    columns = ", ".join(f"{field.name} {_TYPES[field.type]}" for field in schema)
    if paths:
        frame = spark.read.schema(columns).parquet(*map(_literally, paths)).select("*", "_metadata.file_path", "_metadata.row_index")
    else:
        frame = spark.createDataFrame([], f"{columns}, file_path STRING, row_index BIGINT")
    frame.createOrReplaceTempView(name)
    return rows


def _literally(path: Path) -> str:
    """The path as Spark takes it, which else looks for patterns in it."""
    return "file://" + re.sub(r"([\\*?\[\]{},])", r"\\\1", str(path))


def _rows(path: Path, schema: pa.Schema) -> int:
    """How many rows a file says that it has. Spark would take a column that it lacks for one of nulls."""
    try:
        metadata = pq.read_metadata(path)
    except (OSError, pa.ArrowException) as error:
        raise EvidenceError(f"{path} cannot be read as evidence: {error}") from error
    if missing := set(schema.names) - set(metadata.schema.names):
        raise EvidenceError(f"{path} cannot be read as evidence: no column {sorted(missing)[0]}")
    return int(metadata.num_rows)


def _intents(folder: RunFolder) -> Iterator[tuple[int, int, int, int]]:
    """The ranges of records that were about to be sent: each with its number, none too long."""
    for number, line in enumerate(read_json_lines(folder.intents)):
        producer, first, count = int(line["producer"]), int(line["first"]), int(line["count"])
        for begin in range(0, count, _LONGEST_INTENT):
            yield number, producer, first + begin, min(_LONGEST_INTENT, count - begin)


def _table(spark: SparkSession, **columns: np.ndarray) -> DataFrame:
    return spark.createDataFrame(pa.table({name: np.ascontiguousarray(column) for name, column in columns.items()}))


# --- the candidates ---------------------------------------------------------------------------------------------------------------


def _candidates(spark: SparkSession, asked: Collection[Anomaly], progress: Sequence[dict[str, Any]], clock: Clock) -> DataFrame:
    candidates = spark.sql(_CANDIDATES)
    if Anomaly.OFFSET_AHEAD in asked:
        within = _view_of_ranges(spark, "passed", *passed_over(progress))
        doubtful = " OR ".join(["false", *(f"at BETWEEN {since} AND {until}" for since, until in clock.twice)])
        candidates = candidates.union(spark.sql(_OFFSET_AHEAD.format(within=within, doubtful=doubtful)))
    if Anomaly.REORDERED in asked:
        spark.sql(_PLACED).createOrReplaceTempView("placed")
        candidates = candidates.union(spark.sql(_REORDERED))
    if Anomaly.TORN in asked:
        within = _view_of_ranges(spark, "reads", *read_by(progress))
        for name, query in (("read", _READ.format(within=within)), ("held", _HELD), ("torn", _TORN)):
            spark.sql(query).createOrReplaceTempView(name)
        candidates = candidates.union(spark.sql(_OF_TORN))
    return candidates


def passed_over(progress: Sequence[dict[str, Any]]) -> Ranges:
    """From which place until before which it was first reported, by any start, that the job had passed over, and when."""
    ends, times = passed(progress)
    committed = times[1:-1] != NEVER
    return ends[:-1][committed], ends[1:][committed], times[1:-1][committed]


def read_by(progress: Sequence[dict[str, Any]]) -> Ranges:
    """From which place until before which each batch read, and its number."""
    spans = [
        ((int(name) << PARTITION_BITS) + begins.get(name, 0), (int(name) << PARTITION_BITS) + end, number)
        for number, (begins, ends) in ranges(progress).items()
        for name, end in ends.items()
        if begins.get(name, 0) < end
    ]
    low, high, number = np.array(spans, np.int64).reshape(-1, 3).T
    return low, high, number


def decided_by(ends: np.ndarray) -> Ranges:
    """From which moment on each of the ``ends``, which ascend, is the first that is not before it; nothing is before the first."""
    return np.r_[ends[:1], ends[:-1] + 1], ends + 1, ends


def binned(low: np.ndarray, high: np.ndarray) -> tuple[int, np.ndarray, np.ndarray]:
    """How wide a bin is; and for each bin that a range touches a row: which range, which bin."""
    width = max(int((high - low).mean()), 1) if len(low) else 1
    first, counts = low // width, (high - 1) // width - low // width + 1
    row = np.repeat(np.arange(len(low)), counts)
    return width, row, first[row] + np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)


def _view_of_ranges(spark: SparkSession, name: str, low: np.ndarray, high: np.ndarray, value: np.ndarray) -> str:
    """A view of ranges, none empty, with a value each. Returns when a row with a ``place`` lies within one."""
    width, row, bins = binned(low, high)
    frame = _table(spark, bin=bins, low=low[row], high=high[row], value=value[row])
    _sent_to_all(frame, len(bins)).createOrReplaceTempView(name)
    return f"place DIV {width} = {name}.bin AND place >= {name}.low AND place < {name}.high"


# --- what comes back --------------------------------------------------------------------------------------------------------------


def _in_order(spark: SparkSession, query: str, schema: pa.Schema) -> pa.Table:
    """These rows of a history in the order in which they lie in its files."""
    rows = spark.sql(query.format(columns=", ".join([*schema.names, "file_path", "row_index"]))).toArrow()
    return rows.sort_by([("file_path", "ascending"), ("row_index", "ascending")]).select(schema.names).cast(schema)


def _numbers(spark: SparkSession, query: str) -> tuple[np.ndarray, ...]:
    return tuple(integers(column) for column in spark.sql(query).toArrow().columns)


def _flow(spark: SparkSession, ends: np.ndarray) -> recovery.Flow:
    """When records were written, and when they were output: at the first of the ``ends`` from then on, at once where there is none."""
    within = _view_of_ranges(spark, "ended", *decided_by(ends))
    written, records = _numbers(spark, _WRITTEN)
    sent, shown, waited = _numbers(spark, _WAITED.format(within=within, earliest=int(ends[0]) if len(ends) else 0))
    (untimed,) = _numbers(spark, _UNTIMED)
    return recovery.arranged(written, recovery.decided(written, ends), records, sent, shown, waited, int(untimed.sum()))
