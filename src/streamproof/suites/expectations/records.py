"""The anomalies of records, as views: joins and windows over what was sent and what was delivered.

    lost            producer, sequence           acknowledged, or delivered at all, and not as often as it was due
    duplicated      producer, sequence, copies   sent (acknowledged or with an unknown outcome) and delivered more often than it was due
    phantom         producer, sequence           delivered, and never sent, or refused, or not to be delivered
    corrupted       producer, sequence           delivered with another checksum; once for each delivery without an identity, which is null
    reordered       producer, sequence           its first copy came behind one with the same key that was read after it, or copies of it
                                                 are only in another partition of the output than those of its key
    torn            start, batch                 of the records of a micro-batch that one start made visible, others are missing
    offset_ahead    producer, sequence           delivered only after the job had committed an offset above the record's own
    vanished        producer, sequence           a version of the output showed it, and a later one did not
    unordered       producer, sequence           whether it is one of these is not known, because its times are not

    unjudged_atomic, unjudged_ordered, unjudged_monotonic
                    missing, records             what the promise is about and the evidence does not say

A record is due once, or as often as ``expected`` says (the file ``expected.parquet``) of its sequence.

Read first: ``span``, the range of each micro-batch; ``copies``, each delivered record beside its send; ``firsts``, of each record that was
sent and delivered its first copy; ``always_shown``, since when each version has shown a record whose copies came after its commit.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import duckdb

from . import files

ANOMALIES = ("lost", "duplicated", "phantom", "corrupted", "reordered", "torn", "offset_ahead", "vanished")
TORN = ("start", "batch")

_UNSETTLED = """
    SELECT producer, sequence FROM (SELECT producer, unnest(range(first, first + count)) AS sequence FROM intents)
    ANTI JOIN sent USING (producer, sequence)"""
_NONE_UNSETTLED = "SELECT producer, first AS sequence FROM intents WHERE false"
_VIEWS = {
    "sends": """
        SELECT producer, sequence, partition AS input_partition, "offset" AS input_offset, key, crc AS sent_crc, {sha256} AS sent_digest,
               CAST(outcome AS ENUM ('ACKED', 'INDETERMINATE', 'REJECTED')) AS outcome, epoch_ms(sent_at) AS sent_ms
        FROM sent
        UNION ALL
        SELECT producer, sequence, NULL, NULL, NULL, NULL, NULL, CAST('INDETERMINATE' AS ENUM ('ACKED', 'INDETERMINATE', 'REJECTED')), NULL
        FROM unsettled""",
    "copies": """
        SELECT d.producer, d.sequence, d.crc, d.partition AS output_partition, d."offset" AS output_offset, d.batch, d.start,
               if(epoch_ms(d.delivered_at) BETWEEN (SELECT since_ms FROM clock) AND (SELECT until_ms FROM clock),
                  epoch_ms(d.delivered_at), NULL) AS at_ms,
               s.input_partition, s.input_offset, s.key, s.outcome, s.sent_ms,
               d.closed IS false OR coalesce(d.digest <> s.sent_digest, d.crc IS NULL OR d.crc <> s.sent_crc) AS damaged
        FROM delivered AS d LEFT JOIN sends AS s USING (producer, sequence)""",
    "firsts": """
        SELECT producer, sequence, any_value(input_partition) AS input_partition, any_value(input_offset) AS input_offset,
               any_value(outcome) AS outcome, any_value(sent_ms) AS sent_ms, count(*) AS copies, min(at_ms) AS at_ms,
               count(*) > count(at_ms) AS untimed,
               CAST(coalesce(min(at_ms * 1048576 + coalesce(start, -1) + 1) % 1048576, min(coalesce(start, -1)) + 1) AS INTEGER) - 1
                   AS start
        FROM copies WHERE outcome IS NOT NULL GROUP BY producer, sequence""",
    "lost": """
        SELECT producer, sequence, input_partition, input_offset, key FROM sends ANTI JOIN firsts USING (producer, sequence)
        WHERE sends.outcome = 'ACKED'""",
    "duplicated": """
        SELECT producer, sequence, input_partition, input_offset, copies FROM firsts
        WHERE outcome IN ('ACKED', 'INDETERMINATE') AND copies > 1""",
    "phantom": """
        SELECT producer, sequence, count(*) AS copies FROM copies
        WHERE producer IS NOT NULL AND sequence IS NOT NULL AND (outcome IS NULL OR outcome = 'REJECTED') GROUP BY producer, sequence""",
    "corrupted": """
        SELECT producer, sequence, count(*) AS copies FROM copies
        WHERE outcome IS NOT NULL AND damaged GROUP BY producer, sequence
        UNION ALL
        SELECT NULL, NULL, 1 FROM copies WHERE producer IS NULL OR sequence IS NULL""",
    "placed": """
        SELECT key, input_partition, input_offset, output_partition, min(output_offset) AS output_offset, producer, sequence
        FROM copies WHERE key IS NOT NULL AND input_offset IS NOT NULL
        GROUP BY key, input_partition, input_offset, output_partition, producer, sequence""",
    "reordered": """
        WITH usual AS (
            SELECT key, input_partition, output_partition FROM placed GROUP BY key, input_partition, output_partition
            QUALIFY row_number() OVER (PARTITION BY key, input_partition ORDER BY count(*) DESC, output_partition) = 1
        ), in_turn AS (
            SELECT *, max(input_offset) OVER (
                PARTITION BY key, input_partition ORDER BY output_offset ROWS UNBOUNDED PRECEDING
            ) AS newest
            FROM placed SEMI JOIN usual USING (key, input_partition, output_partition)
        )
        SELECT producer, sequence FROM in_turn WHERE input_offset < newest
        UNION
        SELECT producer, sequence FROM placed ANTI JOIN in_turn USING (producer, sequence)""",
    "span": """
        WITH last AS (
            SELECT * FROM reached QUALIFY line = max(line) OVER (PARTITION BY batch)
        )
        SELECT batch, partition, since, until FROM last
        UNION ALL
        SELECT later.batch - 1, later.partition, coalesce(earlier.until, 0), later.since
        FROM last AS later LEFT JOIN last AS earlier ON earlier.batch = later.batch - 2 AND earlier.partition = later.partition
        WHERE later.batch - 1 NOT IN (SELECT batch FROM last) AND later.batch - 2 IN (SELECT batch FROM last)""",
    "torn": """
        WITH read AS (
            SELECT span.batch, producer, sequence FROM sends JOIN span
            ON sends.input_partition = span.partition AND sends.input_offset >= span.since AND sends.input_offset < span.until
            WHERE sends.outcome = 'ACKED'
        ), held AS (
            SELECT DISTINCT start, batch, producer, sequence FROM copies
            WHERE outcome IS NOT NULL AND start IS NOT NULL AND batch IS NOT NULL
        )
        SELECT written.start, written.batch, count(*) AS missing_records
        FROM (SELECT DISTINCT start, batch FROM held) AS written JOIN read USING (batch)
        ANTI JOIN held ON held.start = written.start AND held.batch = written.batch
            AND held.producer = read.producer AND held.sequence = read.sequence
        ANTI JOIN (FROM copies WHERE start IS NULL OR batch IS NULL) AS nameless
            ON nameless.producer = read.producer AND nameless.sequence = read.sequence
        GROUP BY written.start, written.batch""",
    "passed_by_copies": """
        WITH passed AS (
            SELECT own.start, reached.partition, reached.until,
                   min(min(reached.committed_ms)) OVER (
                       PARTITION BY own.start, reached.partition ORDER BY reached.until DESC
                   ) AS committed_ms
            FROM (SELECT DISTINCT start FROM firsts) AS own JOIN reached ON own.start <= reached.start
            GROUP BY own.start, reached.partition, reached.until
        )
        SELECT producer, sequence, input_partition, input_offset, at_ms, committed_ms, untimed
        FROM firsts ASOF JOIN passed
        ON firsts.start = passed.start AND firsts.input_partition = passed.partition AND firsts.input_offset < passed.until
        WHERE firsts.outcome = 'ACKED'""",
    "always_shown": """
        WITH late AS (FROM passed_by_copies WHERE at_ms IS NULL OR at_ms > committed_ms), pieces AS (
            SELECT producer, sequence, since, coalesce(until, 2147483647) AS until,
                   max(coalesce(until, 2147483647)) OVER (
                       PARTITION BY producer, sequence ORDER BY since ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
            FROM shown SEMI JOIN late USING (producer, sequence)
        ), stretches AS (
            SELECT producer, sequence, max(since) FILTER (WHERE before IS NULL OR since > before) AS since, max(until) AS until
            FROM pieces GROUP BY producer, sequence
        )
        SELECT producer, sequence, version_times.at_ms FROM stretches JOIN version_times ON version_times.number = stretches.since
        WHERE until = 2147483647 AND version_times.at_ms BETWEEN (SELECT since_ms FROM clock) AND (SELECT until_ms FROM clock)""",
    "passed_over": """
        SELECT producer, sequence, input_partition, input_offset, least(p.at_ms, a.at_ms) AS at_ms, committed_ms, untimed, EXISTS (
                   FROM shown_twice AS t
                   WHERE least(p.at_ms, a.at_ms) BETWEEN t.since_ms AND t.until_ms
                   AND committed_ms BETWEEN t.since_ms AND t.until_ms) AS twice
        FROM passed_by_copies AS p LEFT JOIN always_shown AS a USING (producer, sequence)""",
    "offset_ahead": """
        SELECT producer, sequence, input_partition, input_offset, at_ms - committed_ms AS late_ms FROM passed_over
        WHERE at_ms > committed_ms AND NOT untimed AND NOT twice""",
    "vanished": """
        WITH ended AS (
            SELECT DISTINCT producer, sequence, until FROM shown SEMI JOIN sends USING (producer, sequence) WHERE until IS NOT NULL
            AND (producer, sequence) NOT IN (SELECT (producer, sequence) FROM sends WHERE outcome = 'REJECTED')
        ), missed AS (
            SELECT ended.producer, ended.sequence, ended.until, min(later.since) AS back
            FROM ended LEFT JOIN shown AS later
            ON later.producer = ended.producer AND later.sequence = ended.sequence AND later.since > ended.until
            WHERE NOT EXISTS (
                FROM shown AS other WHERE other.producer = ended.producer AND other.sequence = ended.sequence
                AND other.since <= ended.until AND (other.until IS NULL OR other.until > ended.until))
            GROUP BY ended.producer, ended.sequence, ended.until
        )
        SELECT DISTINCT producer, sequence FROM missed
        JOIN judged_versions ON number >= missed.until AND (back IS NULL OR number < back)""",
    "unordered": """
        SELECT producer, sequence, input_partition, input_offset, at_ms - committed_ms AS late_ms FROM passed_over
        WHERE twice OR (untimed AND (at_ms IS NULL OR at_ms > committed_ms))""",
}
_VIEWS["unjudged_atomic"] = """
    SELECT 'copies that do not name the batch that wrote them' AS missing, count(*) AS records FROM delivered
    WHERE start IS NULL OR batch IS NULL HAVING count(*) > 0
    UNION ALL
    SELECT 'copies of batch ' || batch || ', of which no report says what it read', count(*) FROM delivered
    WHERE start IS NOT NULL AND batch NOT IN (SELECT batch FROM span) GROUP BY batch
    UNION ALL
    SELECT 'acknowledged records without a known offset', count(*) FROM sent
    WHERE outcome = 'ACKED' AND "offset" IS NULL HAVING count(*) > 0"""
_VIEWS["unjudged_ordered"] = """
    SELECT 'acknowledged records without a known offset' AS missing, count(*) AS records FROM sent
    WHERE outcome = 'ACKED' AND "offset" IS NULL AND key IS NOT NULL HAVING count(*) > 0"""
_VIEWS["unjudged_monotonic"] = "SELECT missing, 1 AS records FROM unread_versions"
_PHANTOM = _VIEWS["phantom"]
_BY_COUNT = {
    "lost": """
        SELECT sends.producer, sends.sequence, sends.input_partition, sends.input_offset, sends.key
        FROM sends JOIN expected USING (sequence) LEFT JOIN firsts USING (producer, sequence)
        WHERE coalesce(firsts.copies, 0) < due AND (sends.outcome = 'ACKED' OR (sends.outcome = 'INDETERMINATE' AND firsts.copies > 0))""",
    "duplicated": """
        SELECT producer, sequence, input_partition, input_offset, copies FROM firsts JOIN expected USING (sequence)
        WHERE outcome IN ('ACKED', 'INDETERMINATE') AND copies > due AND due > 0""",
    "phantom": f"""
        {_PHANTOM}
        UNION ALL
        SELECT producer, sequence, copies FROM firsts JOIN expected USING (sequence)
        WHERE outcome IN ('ACKED', 'INDETERMINATE') AND due = 0""",
}
"""The same where the run says how often each record is due."""
_NOT_COUNTED = {
    "expected.parquet says nothing of a record that was sent": "SELECT 1 FROM sends ANTI JOIN expected USING (sequence)",
    "expected.parquet holds a record that is due less than never": "SELECT 1 FROM expected WHERE due IS NULL OR due < 0",
}
_REFUSED = {
    "the workload sent one identity twice": "SELECT 1 FROM sent GROUP BY producer, sequence HAVING count(*) > 1",
    "sent/ holds a record without producer or sequence": "SELECT 1 FROM sent WHERE producer IS NULL OR sequence IS NULL",
    "sent/ holds an outcome that is none of ACKED, REJECTED, INDETERMINATE": """
        SELECT 1 FROM sent WHERE outcome IS NULL OR outcome NOT IN ('ACKED', 'REJECTED', 'INDETERMINATE')""",
    "sent/ holds two records at one place": """
        SELECT 1 FROM sent WHERE outcome = 'ACKED' AND "offset" IS NOT NULL GROUP BY partition, "offset" HAVING count(*) > 1""",
    "delivered/ holds two records at one place": 'SELECT 1 FROM delivered GROUP BY partition, "offset" HAVING count(*) > 1',
    "delivered/ holds a record without delivered_at": "SELECT 1 FROM delivered WHERE delivered_at IS NULL",
}
_VIEWS["output"] = "SELECT sent_ms, outcome = 'ACKED' AND sent_ms IS NOT NULL AS waited, at_ms, untimed FROM firsts"
COMPUTED = ("copies", "firsts", "passed_by_copies")
"""What several of the others read: computed once."""


def define(connection: duckdb.DuckDBPyConnection, keep: Collection[str] = ()) -> None:
    """Define the views. Raises Unreadable for histories that no run writes."""
    _refuse(connection, _REFUSED)
    ((unsettled,),) = connection.execute("SELECT coalesce((SELECT sum(count) FROM intents), 0) > (SELECT count(*) FROM sent)").fetchall()
    digests = "SELECT 1 FROM information_schema.columns WHERE table_name = 'sent' AND column_name = 'sha256'"
    sha256 = "sha256" if connection.execute(digests).fetchall() else "CAST(NULL AS BIGINT)"
    sends = {"sends": _VIEWS["sends"].replace("{sha256}", sha256)}
    counted = bool(connection.execute("SELECT 1 FROM information_schema.tables WHERE table_name = 'expected'").fetchall())
    views = {"unsettled": _UNSETTLED if unsettled else _NONE_UNSETTLED, **_VIEWS, **sends, **(_BY_COUNT if counted else {})}
    files.define(connection, views, {"unsettled", *COMPUTED, *keep})
    if counted:
        _refuse(connection, _NOT_COUNTED)


def _refuse(connection: duckdb.DuckDBPyConnection, damages: Mapping[str, str]) -> None:
    """Raises Unreadable for the first of these queries that finds something."""
    for damage, query in damages.items():
        if connection.execute(f"{query} LIMIT 1").fetchone() is not None:
            raise files.Unreadable(f"the histories are damaged: {damage}")
