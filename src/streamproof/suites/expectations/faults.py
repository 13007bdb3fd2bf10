"""What the journal says of the faults and of the phases, and when the job came back after each, as views.

    checks       injection, kind (evidence or heal), statement, passed, detail: every evidence check about every injection that was planned
                 or started. An injection of which nothing was checked has a row that did not pass
    injections   injection, injected_ms, healed_ms, first_output (whether there was output after it), caught_up_ms (how long its backlog
                 was there). When some output came at an unknown time the second is not known, and the first is not denied
    phases       phase, batches: how many micro-batches were committed in it
    sent_in      number, phase, acked: how many ACKED records were sent in it
    known        sends, indeterminate: how many sends there are, and of how many the outcome is unknown
    deliveries   at_ms: when each delivered record, or each result of a stateful job, was made

Output is a record that was sent, from when a reader can see its first copy. Where the drain's stamps say when a record was *written*, it
counts from the end of the micro-batch that went on then, or from the next start of the driver (``decided``).
"""

from __future__ import annotations

import duckdb

from . import files

_PLANNED_OR_STARTED = """
    SELECT injection, any_value(fault) AS fault FROM (
        SELECT injection, fault FROM schedule
        UNION ALL
        SELECT entry->>'injection', entry->>'fault' FROM journal WHERE event = 'injection_started'
    ) GROUP BY injection"""
_LAST = """
    SELECT entry->>'injection' AS injection, event, at_ms, entry FROM journal
    WHERE event IN ('injection_injected', 'injection_evidence', 'injection_healed', 'injection_failed')
    QUALIFY line = max(line) OVER (PARTITION BY entry->>'injection', event)"""
_STATED = """
    SELECT injection, event, unnest(from_json(coalesce(entry->'checks', '[]'), '["JSON"]')) AS stated FROM last_entries
    WHERE event IN ('injection_evidence', 'injection_healed')"""
_CHECKS = """
    SELECT injection, if(event = 'injection_healed', 'heal', 'evidence') AS kind, stated->>'check' AS statement,
           coalesce(CAST(stated->>'passed' AS BOOLEAN), false) AS passed, coalesce(stated->>'detail', '') AS detail
    FROM stated
    UNION ALL
    SELECT injection, 'evidence', 'no evidence was recorded', false, coalesce(failed.entry->>'error', '')
    FROM planned_or_started LEFT JOIN (FROM last_entries WHERE event = 'injection_failed') AS failed USING (injection)
    WHERE injection NOT IN (SELECT injection FROM stated WHERE event = 'injection_evidence')
    UNION ALL
    SELECT injection, 'heal', if(healed.injection IS NULL, 'no heal was recorded', 'nothing had to be undone'),
           healed.injection IS NOT NULL, ''
    FROM planned_or_started LEFT JOIN (FROM last_entries WHERE event = 'injection_healed') AS healed USING (injection)
    WHERE planned_or_started.injection NOT IN (SELECT injection FROM stated WHERE event = 'injection_healed')"""
_DECIDED = """
    SELECT DISTINCT at_ms FROM (
        SELECT committed_ms AS at_ms FROM progress UNION ALL SELECT at_ms FROM journal WHERE event = 'driver_ready'
    ) WHERE {written}"""
_INJECTIONS = """
    SELECT injection, injected_ms, healed_ms,
           injected_ms <= (SELECT max(at_ms) FROM {made}) OR EXISTS (FROM output WHERE untimed) AS first_output,
           if(healed_ms IS NULL OR EXISTS (FROM output WHERE untimed), NULL,
              greatest(coalesce(decided_ms, last_ms, injected_ms), injected_ms) - injected_ms) AS caught_up_ms
    FROM (
        SELECT planned.injection, injected.at_ms AS injected_ms, healed.at_ms AS healed_ms,
               (SELECT max(at_ms) FROM output WHERE waited AND sent_ms <= healed.at_ms) AS last_ms,
               (SELECT min(at_ms) FROM decided WHERE at_ms >= (
                   SELECT max(at_ms) FROM output WHERE waited AND sent_ms <= healed.at_ms)) AS decided_ms
        FROM schedule AS planned
        LEFT JOIN (FROM last_entries WHERE event = 'injection_injected') AS injected USING (injection)
        LEFT JOIN (FROM last_entries WHERE event = 'injection_healed') AS healed USING (injection)
    )"""
_SPANS = """
    SELECT * FROM (
        SELECT entry->>'phase' AS phase, at_ms, line,
               coalesce(lead(at_ms) OVER (ORDER BY line), (SELECT arg_max(at_ms, line) FROM journal)) AS ended_ms
        FROM journal WHERE event = 'phase'
    ) QUALIFY line = max(line) OVER (PARTITION BY phase)"""
_PHASES = """  -- a phase begins because a commit was seen: one in its first ms belongs to the phase before
    SELECT named.phase, count(progress.line) AS batches
    FROM (VALUES (1, 'steady'), (2, 'impact'), (3, 'recovery')) AS named(number, phase) LEFT JOIN spans USING (phase)
    LEFT JOIN progress ON progress.committed_ms > spans.at_ms AND progress.committed_ms <= spans.ended_ms
    GROUP BY named.number, named.phase ORDER BY named.number"""
_SENT_IN = " UNION ALL ".join(
    f"""
    SELECT {number} AS number, '{phase}' AS phase, count(*) AS acked FROM sent
    WHERE outcome = 'ACKED' AND epoch_ms(sent_at) >= (SELECT at_ms FROM spans WHERE phase = '{phase}')
          AND epoch_ms(sent_at) < (SELECT ended_ms FROM spans WHERE phase = '{phase}')"""
    for number, phase in enumerate(("steady", "impact", "recovery"))
)
_KNOWN = """
    SELECT greatest(rows, intended) AS sends, unknown + greatest(intended - rows, 0) AS indeterminate
    FROM (SELECT count(*) AS rows, count(*) FILTER (outcome = 'INDETERMINATE') AS unknown FROM sent)
    CROSS JOIN (SELECT coalesce(sum(count), 0) AS intended FROM intents)"""


def define(connection: duckdb.DuckDBPyConnection) -> None:
    """Define the views; those that read the plan are left out where there is none."""
    tables = {name for (name,) in connection.execute("SELECT table_name FROM information_schema.tables").fetchall()}
    made = "payloads" if "batches" in tables else "delivered"
    views = {"last_entries": _LAST, "stated": _STATED, "spans": _SPANS, "phases": _PHASES, "sent_in": _SENT_IN, "known": _KNOWN}
    views["deliveries"] = f"SELECT epoch_ms(delivered_at) AS at_ms FROM {made}"
    files.define(connection, views, {"last_entries", "stated", "spans"})
    if "drain" in tables:
        ((kind,),) = connection.execute("SELECT coalesce(max(stamps), 'written') FROM drain").fetchall()
        written = kind == "written" and "batches" not in tables  # a result is output once its batch is committed
        files.define(connection, {"decided": _DECIDED.format(written=written)}, {"decided"})
    if {"schedule", "drain"} <= tables:
        injections = _INJECTIONS.format(made="deliveries" if "batches" in tables else "output")
        views = {"planned_or_started": _PLANNED_OR_STARTED, "checks": _CHECKS, "injections": injections}
        files.define(connection, views, {"planned_or_started", "checks", "injections"})
