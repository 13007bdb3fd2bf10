"""The same anomalies found a second time, by other means: SQL over the Parquet files, in DuckDB.

The checkers are arrays and binary searches; this is joins and windows, written from the definitions and not from the checkers' code. Both
read the same files. What they share is :mod:`streamproof.verdict.anomaly`'s definitions, and how a line of ``progress.jsonl`` or of an
intent is read. They must name the same records; if they do not, one of them is wrong and nobody can say which: the run is an ERROR.

DuckDB is imported when it is first asked: to import this module costs nothing more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streamproof.evidence.folder import EvidenceError, RunFolder, read_json_lines
from streamproof.evidence.histories import DELIVERED, SENT, files
from streamproof.verdict.anomaly import Anomaly
from streamproof.verdict.checks.matching import Finding

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

Named = tuple[str, int | None, int | None]
SHOWN = 3
SPILL = ".second-opinion"

_SENDS = """
    CREATE TEMP TABLE sends AS
    WITH settled AS (
        SELECT producer, sequence, partition, "offset" AS place, key, crc, outcome FROM sent
    ), intended AS (
        SELECT producer, unnest(range(first, first + count)) AS sequence FROM intents
    )
    SELECT * FROM settled
    UNION ALL
    SELECT producer, sequence, NULL, NULL, NULL, NULL, 'INDETERMINATE' FROM intended ANTI JOIN settled USING (producer, sequence)
"""
_COPIES = """
    CREATE TEMP TABLE copies AS
    SELECT d.producer, d.sequence, d.crc, d.partition AS output, d."offset" AS position, d.batch, d.start,
           epoch_ms(d.delivered_at) AS at_ms, s.partition, s.place, s.key, s.outcome, s.crc AS sent_crc
    FROM delivered AS d LEFT JOIN sends AS s USING (producer, sequence)
"""
_QUERIES: dict[Anomaly, str] = {
    Anomaly.LOST: """
        SELECT producer, sequence FROM sends ANTI JOIN copies USING (producer, sequence) WHERE sends.outcome = 'ACKED'""",
    Anomaly.DUPLICATED: """
        SELECT producer, sequence FROM copies WHERE outcome IN ('ACKED', 'INDETERMINATE') GROUP BY ALL HAVING count(*) > 1""",
    Anomaly.PHANTOM: """
        SELECT DISTINCT producer, sequence FROM copies
        WHERE producer IS NOT NULL AND sequence IS NOT NULL AND (outcome IS NULL OR outcome = 'REJECTED')""",
    Anomaly.CORRUPTED: """
        SELECT DISTINCT producer, sequence FROM copies WHERE outcome IS NOT NULL AND (crc IS NULL OR crc <> sent_crc)
        UNION ALL
        SELECT NULL, NULL FROM copies WHERE producer IS NULL OR sequence IS NULL""",
    Anomaly.REORDERED: """
        WITH placed AS (
            SELECT key, partition, place, output, min(position) AS position, producer, sequence
            FROM copies WHERE key IS NOT NULL AND place IS NOT NULL GROUP BY key, partition, place, output, producer, sequence
        ), home AS (
            SELECT key, partition, output FROM placed GROUP BY key, partition, output
            QUALIFY row_number() OVER (PARTITION BY key, partition ORDER BY count(*) DESC, output) = 1
        ), at_home AS (
            SELECT *, max(place) OVER (PARTITION BY key, partition ORDER BY position ROWS UNBOUNDED PRECEDING) AS newest
            FROM placed SEMI JOIN home USING (key, partition, output)
        )
        SELECT producer, sequence FROM at_home WHERE place < newest
        UNION
        SELECT producer, sequence FROM placed ANTI JOIN at_home USING (producer, sequence)""",
    Anomaly.TORN: """
        WITH last AS (
            SELECT * FROM reports QUALIFY line = max(line) OVER (PARTITION BY batch)
        ), span AS (
            SELECT batch, partition, since, until FROM last
            UNION ALL
            SELECT later.batch - 1, later.partition, coalesce(earlier.until, 0), later.since
            FROM last AS later LEFT JOIN last AS earlier ON earlier.batch = later.batch - 2 AND earlier.partition = later.partition
            WHERE later.batch - 1 NOT IN (SELECT batch FROM last) AND later.batch - 2 IN (SELECT batch FROM last)
        ), read AS (
            SELECT span.batch, producer, sequence FROM sends JOIN span
            ON sends.partition = span.partition AND sends.place >= span.since AND sends.place < span.until WHERE sends.outcome = 'ACKED'
        ), held AS (
            SELECT DISTINCT start, batch, producer, sequence FROM copies
            WHERE outcome IS NOT NULL AND start IS NOT NULL AND batch IS NOT NULL
        )
        SELECT DISTINCT edition.start, edition.batch
        FROM (SELECT DISTINCT start, batch FROM held) AS edition JOIN read USING (batch)
        ANTI JOIN held ON held.start = edition.start AND held.batch = edition.batch
            AND held.producer = read.producer AND held.sequence = read.sequence""",
    Anomaly.AHEAD: """
        WITH first AS (
            SELECT producer, sequence, partition, place, min(at_ms) AS at_ms,
                   arg_min(coalesce(start, -1), (at_ms, coalesce(start, -1))) AS start
            FROM copies WHERE outcome = 'ACKED' AND place IS NOT NULL GROUP BY producer, sequence, partition, place
        ), passed AS (
            SELECT own.start, reports.partition, reports.until,
                   min(min(reports.at_ms)) OVER (PARTITION BY own.start, reports.partition ORDER BY reports.until DESC) AS at_ms
            FROM (SELECT DISTINCT start FROM first) AS own JOIN reports ON own.start <= reports.start
            GROUP BY own.start, reports.partition, reports.until
        )
        SELECT producer, sequence FROM first ASOF JOIN passed
        ON first.start = passed.start AND first.partition = passed.partition AND first.place < passed.until
        WHERE first.at_ms > passed.at_ms""",
}

# One thread, and not much memory: most runs are small, and of a large one the rest is put on the disk, in its folder. No extension is
# fetched from the network: all that is used is in the wheel.
_ALONE: dict[str, str | bool | int | float | list[str]] = {
    "threads": 1,
    "memory_limit": "400MB",
    "preserve_insertion_order": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}
_INTENTS = pa.schema([("producer", pa.int32()), ("first", pa.int64()), ("count", pa.int64())])
_REPORTS = pa.schema([(name, pa.int64()) for name in ("line", "batch", "start", "at_ms", "partition", "since", "until")])


def find(folder: RunFolder, asked: Collection[Anomaly], progress: Sequence[dict[str, Any]]) -> Counter[Named]:
    """The anomalies that were ``asked`` for, each as (anomaly, producer, sequence), or (TORN, start, batch). Raises EvidenceError."""
    import duckdb

    with duckdb.connect(config={**_ALONE, "temp_directory": str(folder.path / SPILL)}) as connection:
        try:
            _load(connection, folder, progress)
            found: Counter[Named] = Counter()
            for anomaly in asked:
                found.update((str(anomaly), *row) for row in connection.execute(_QUERIES[anomaly]).fetchall())
        except duckdb.Error as error:
            raise EvidenceError(f"{folder.path}: the second opinion cannot read the evidence: {error}") from error
    return found


def disagreement(
    folder: RunFolder, asked: Collection[Anomaly], progress: Sequence[dict[str, Any]], findings: Iterable[Finding]
) -> str | None:
    """A sentence on what only one of the two found; None when they agree."""
    second, first = find(folder, asked, progress), Counter(_named(finding) for finding in findings)
    if first == second:
        return None
    only_first, only_second = first - second, second - first
    told = [f"only the {who} names {_shown(found)}" for who, found in (("checker", only_first), ("second opinion", only_second)) if found]
    return f"the checker and the second opinion do not agree: {'; '.join(told)}"


def _named(finding: Finding) -> Named:
    if finding.anomaly is Anomaly.TORN:
        return str(finding.anomaly), finding.start, finding.batch
    return str(finding.anomaly), finding.producer, finding.sequence


def _shown(found: Counter[Named]) -> str:
    some = sorted(found, key=str)[:SHOWN]
    more = found.total() - len(some)
    return ", ".join(f"{anomaly} {one}/{other}" for anomaly, one, other in some) + (f" and {more} more" if more else "")


def _load(connection: DuckDBPyConnection, folder: RunFolder, progress: Sequence[dict[str, Any]]) -> None:
    for name, directory, schema in (("sent", folder.sent, SENT), ("delivered", folder.delivered, DELIVERED)):
        paths = [str(path) for path in files(directory)]
        if paths:
            connection.read_parquet(paths).create_view(name)
        else:
            connection.from_arrow(schema.empty_table()).create_view(name)
    intents = [{name: line[name] for name in _INTENTS.names} for line in read_json_lines(folder.intents)]
    connection.from_arrow(pa.Table.from_pylist(intents, schema=_INTENTS)).create_view("intents")
    connection.from_arrow(pa.Table.from_pylist(list(_reports(progress)), schema=_REPORTS)).create_view("reports")
    connection.execute(_SENDS)
    connection.execute(_COPIES)


def _reports(progress: Sequence[dict[str, Any]]) -> Iterable[dict[str, int]]:
    """A row for each partition of each line of ``progress.jsonl``."""
    for number, line in enumerate(progress):
        at_ms = round(datetime.fromisoformat(line["committed_at"]).timestamp() * 1000)
        for partition, until in line["until"].items():
            since = (line["from"] or {}).get(partition, 0)
            known = {"line": number, "batch": line["batch"], "start": line["start"], "at_ms": at_ms}
            yield {**known, "partition": int(partition), "since": since, "until": until}
