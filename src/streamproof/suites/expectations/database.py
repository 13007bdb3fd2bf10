"""A run's folder as a DuckDB database: its Parquet files as views, its lines of JSON as tables, the anomalies as views over both.

    sent, delivered            the two histories; the second one as the second reader has it (:mod:`.second_reading`)
    shown, judged_versions     which versions of the output showed which record, see :mod:`.versions`
    intents                    producer, first, count
    expected                   sequence, due: where the run says how often each record is to be delivered
    progress                   line, batch, start, committed_ms
    reached                    the same for each partition of the input: line, batch, start, committed_ms, partition, since, until
    journal                    line, at_ms, event, entry (the whole line as JSON)
    schedule                   injection, fault
    drain                      complete, reason, stamps
    source_ends                partition, end_offset
    clock, shown_twice         which times of the output are believed, see :mod:`.clock`
    spec                       what the run is held to, where ``expectations/spec.json`` says it
    events, payloads, batches  of a stateful job

A view whose file is missing is left out, so that a query over it is an error and never passes for want of rows. Histories without a file
are empty, and so are lines of JSON: a job that never came so far writes none.

Needs DuckDB alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb

from . import clock, faults, files, records, results, second_reading, versions
from .files import Unreadable, document, lines, milliseconds, parquet, table

_INTENTS = {"producer": "INTEGER", "first": "BIGINT", "count": "BIGINT"}
_PROGRESS = {"line": "BIGINT", "batch": "BIGINT", "start": "BIGINT", "committed_ms": "BIGINT"}
_SPEC = {"guarantee": "VARCHAR", "promises": "JSON", "expected": "JSON", "recover_within_s": "DOUBLE", "computation": "JSON"}

HISTORIES = {
    "sent": """producer INTEGER, sequence BIGINT, partition INTEGER, "offset" BIGINT, key VARCHAR, crc UINTEGER, outcome VARCHAR,
        sent_at TIMESTAMPTZ""",
    "delivered": """producer INTEGER, sequence BIGINT, crc UINTEGER, partition INTEGER, "offset" BIGINT, batch BIGINT, attempt INTEGER,
        start INTEGER, delivered_at TIMESTAMPTZ""",
}


def settings(spill: Path | str, memory: str = "400MB", threads: int = 1) -> dict[str, Any]:
    """How DuckDB is opened: bounded memory, the rest on the disk in the folder ``spill``, nothing from the network.

    All connections to one file must be opened with the same settings.
    """
    return {
        "threads": threads,
        "memory_limit": memory,
        "temp_directory": str(spill),
        "preserve_insertion_order": False,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
    }


@contextmanager
def building(
    folder: Path | str,
    file: Path | str = ":memory:",
    config: dict[str, Any] | None = None,
    keep: Collection[str] = (),
    spec: dict[str, Any] | None = None,
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a database of the run in ``folder``. Views that are named in ``keep`` (``lost``, ...) are computed once, as tables.

    ``spec`` is what the run is held to, where its folder does not say it. Raises Unreadable for a file that is damaged. The database must
    be closed before Great Expectations opens its file.
    """
    connection = duckdb.connect(str(file), config=config if config is not None else settings(f"{folder}/.judging"))
    try:
        try:
            fill(connection, Path(folder), keep, spec)
        except duckdb.Error as error:
            raise Unreadable(f"{folder} cannot be read as evidence: {error}") from error
        yield connection
    finally:
        connection.close()


def fill(connection: duckdb.DuckDBPyConnection, folder: Path, keep: Collection[str] = (), spec: dict[str, Any] | None = None) -> None:
    """Define every view and table. A database that was filled before is filled anew."""
    written = folder / "expectations" / "spec.json"
    if spec is None and written.exists():
        spec = document(written, *_SPEC)
    if spec is not None:
        table(connection, "spec", _SPEC, [[spec[name] for name in _SPEC]])
    histories(connection, folder, location=spec.get("location") if spec is not None else None)
    rows = ([number, *_entry(folder, line)] for number, line in enumerate(lines(folder / "journal.jsonl", "at", "event")))
    table(connection, "journal", {"line": "BIGINT", "at_ms": "BIGINT", "event": "VARCHAR", "entry": "JSON"}, rows)
    drain, schedule = folder / "delivered" / "drain.json", folder / "schedule.json"
    if drain.exists():
        columns = {"complete": "BOOLEAN", "reason": "VARCHAR", "stamps": "VARCHAR"}
        table(connection, "drain", columns, [[document(drain, "complete").get(name) for name in columns]])
    if schedule.exists():
        planned = document(schedule, "injections")["injections"]
        table(connection, "schedule", {"injection": "VARCHAR", "fault": "VARCHAR"}, [[one["injection"], one["fault"]] for one in planned])
    source = folder / "source.json"
    ends = document(source, "end_offsets")["end_offsets"] if source.exists() else {}
    table(connection, "source_ends", {"partition": "INTEGER", "end_offset": "BIGINT"}, [list(end) for end in ends.items()])
    if spec is None or spec["computation"] is None:
        records.define(connection, keep)
    else:
        results.define(connection, folder, spec["computation"], keep)
    faults.define(connection)


def histories(
    connection: duckdb.DuckDBPyConnection, folder: Path, keep: Collection[str] = (), location: dict[str, Any] | None = None
) -> None:
    """What was sent and delivered, what was to be sent, and what was committed when."""
    clock.define(connection, folder)
    parquet(connection, "sent", folder / "sent", HISTORIES["sent"], keep)
    second_reading.define(connection, folder, HISTORIES["delivered"], keep, location)
    versions.define(connection, folder, keep)
    connection.execute("DROP TABLE IF EXISTS expected")
    if (expected := folder / "expected.parquet").exists():
        quoted = str(expected).replace("'", "''")
        query = f"SELECT file_row_number AS sequence, count AS due FROM read_parquet('{quoted}', file_row_number = true)"
        files.define(connection, {"expected": query}, {"expected"})
    intents = ([line["producer"], line["first"], line["count"]] for line in lines(folder / "sent" / "intents.jsonl", *_INTENTS))
    table(connection, "intents", _INTENTS, intents)
    progress = list(lines(folder / "progress.jsonl", "batch", "start", "committed_at", "from", "until"))
    rows = [[number, line["batch"], line["start"], milliseconds(line["committed_at"])] for number, line in enumerate(progress)]
    table(connection, "progress", _PROGRESS, rows)
    ends = (
        [*row, partition, (line["from"] or {}).get(partition, 0), until]
        for row, line in zip(rows, progress, strict=True)
        for partition, until in line["until"].items()
    )
    table(connection, "reached", {**_PROGRESS, "partition": "INTEGER", "since": "BIGINT", "until": "BIGINT"}, ends)


def _entry(folder: Path, line: dict[str, Any]) -> list[Any]:
    try:
        return [milliseconds(line["at"]), line["event"], line]
    except (TypeError, ValueError) as error:
        raise Unreadable(f"{folder / 'journal.jsonl'} is damaged: at is {line['at']!r}") from error
