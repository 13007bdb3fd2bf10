"""Whether the two judges of a run name the same records.

The checkers' findings are in the reconciliation; the suites' findings are the views of their database. Both judges read the same histories.
They share the definitions of the anomalies, but no code. If they name different records, one of them is wrong, and the run is an ERROR. All
records are compared, also those of anomalies that the guarantee allows.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from streamproof.evidence.folder import EvidenceError, RunFolder
from streamproof.shown import first
from streamproof.suites.spec import SuiteSpec
from streamproof.verdict.anomaly import RESULT_KINDS, Anomaly

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyConnection

SHOWN = 3
SPILL = ".judging"
_BY_BATCH = (Anomaly.TORN, Anomaly.DROPPED)


def check(folder: RunFolder, spec: SuiteSpec, reconciliation: pa.Table) -> str | None:
    """Ask the suites' queries about a run, without Great Expectations. Returns a sentence on what only one of the two judges names."""
    import duckdb

    from streamproof.suites.expectations import database
    from streamproof.suites.expectations.files import Unreadable

    spill = folder.path / SPILL
    try:
        with database.building(folder.path, spec=spec.to_dict(), config=database.settings(spill)) as connection:
            connection.register("reconciliation", reconciliation)
            return disagreement(connection, spec.asked, "reconciliation")
    except (Unreadable, duckdb.Error) as error:
        raise EvidenceError(f"{folder.path}: the expectation suites cannot read the evidence: {error}") from error
    finally:
        shutil.rmtree(spill, ignore_errors=True)


def disagreement(connection: DuckDBPyConnection, asked: Collection[Anomaly], reconciliation: str | Path) -> str | None:
    """A sentence on what only one of the two judges names; None when they agree. ``reconciliation`` is a file, or a table's name."""
    if isinstance(reconciliation, Path) and not reconciliation.exists():
        return f"{reconciliation} is missing: the checkers name no record that could be compared"
    if (contradiction := misread(connection)) is not None:
        return contradiction
    asked = [anomaly for anomaly in asked if anomaly not in unjudged(connection)]
    if not asked:
        return None
    source = f"read_parquet('{str(reconciliation).replace(chr(39), chr(39) * 2)}')" if isinstance(reconciliation, Path) else reconciliation
    by_batch, names = ", ".join(f"'{one}'" for one in _BY_BATCH), ", ".join(f"'{one}'" for one in asked)
    by_checkers = f"""
        SELECT anomaly, CAST(if(anomaly IN ({by_batch}), start, producer) AS BIGINT) AS one,
               CAST(if(anomaly IN ({by_batch}), batch, sequence) AS BIGINT) AS other, CAST(result AS VARCHAR) AS result
        FROM {source} WHERE "row" = 'record' AND anomaly IN ({names})"""
    connection.execute(f"CREATE OR REPLACE TEMP TABLE by_checkers AS {by_checkers}")
    connection.execute(f"CREATE OR REPLACE TEMP TABLE by_suites AS {' UNION ALL '.join(map(_named, asked))}")
    differences = (("the checkers name", "by_checkers", "by_suites"), ("the expectation suites name", "by_suites", "by_checkers"))
    shown = [(who, _shown(connection, f"FROM {one} EXCEPT ALL FROM {other}")) for who, one, other in differences]
    only = [f"only {who} {named}" for who, named in shown if named]
    return f"the checkers and the expectation suites do not agree: {'; '.join(only)}" if only else None


def misread(connection: DuckDBPyConnection) -> str | None:
    """A sentence on what the drain and the second reader read differently; None when that is nothing, or there was no second reader."""
    if not connection.execute("SELECT 1 FROM information_schema.tables WHERE table_name = 'misread'").fetchall():
        return None
    found = [sentence for sentence in (_misread_records(connection), _other_ends(connection)) if sentence]
    return f"the drain and the second reader of the output do not agree: {'; '.join(found)}" if found else None


def _other_ends(connection: DuckDBPyConnection) -> str:
    rows = connection.execute("FROM ends_differ ORDER BY partition").fetchall()
    named = [
        f"the drain found the end of output {partition} at {_end(drain_end)}, the second reader at {_end(own_end)}"
        for partition, drain_end, own_end in rows[:SHOWN]
    ]
    return first(named, len(rows))


def _end(offset: int | None) -> str:
    return "no offset" if offset is None else str(offset)


def _misread_records(connection: DuckDBPyConnection) -> str:
    ((count,),) = connection.execute("SELECT count(*) FROM misread").fetchall()
    some = connection.execute(f"""
        SELECT who, partition, "offset", producer, sequence FROM misread ORDER BY partition, "offset", who LIMIT {SHOWN}""").fetchall()
    named = [
        f"{who} found {'no record of ours' if producer is None else f'record {producer}/{sequence}'} at output {partition}/{offset}"
        for who, partition, offset, producer, sequence in some
    ]
    return first(named, count)


def unjudged(connection: DuckDBPyConnection) -> tuple[Anomaly, ...]:
    """The anomalies that the suites do not judge in this run."""
    return RESULT_KINDS if reason_unjudged(connection) is not None else ()


def reason_unjudged(connection: DuckDBPyConnection) -> str | None:
    """Why the suites do not judge the results of this stateful job; None when they do, or when the job is not stateful."""
    if not connection.execute("SELECT 1 FROM information_schema.tables WHERE table_name = 'unjudged'").fetchall():
        return None
    row = connection.execute("SELECT reason FROM unjudged").fetchone()
    return None if row is None else str(row[0])


def _named(anomaly: Anomaly) -> str:
    """A query for what the suites name."""
    if anomaly in _BY_BATCH:
        one, other, result = "start", "batch", "NULL"
    elif anomaly in RESULT_KINDS:
        one, other, result = "NULL", "NULL", "name"
    else:
        one, other, result = "producer", "sequence", "NULL"
    return f"""
        SELECT '{anomaly}' AS anomaly, CAST({one} AS BIGINT) AS one, CAST({other} AS BIGINT) AS other, CAST({result} AS VARCHAR) AS result
        FROM {anomaly.lower()}"""


def _shown(connection: DuckDBPyConnection, query: str) -> str:
    """The first of the records in words, and how many more there are; empty when there is none."""
    ((count,),) = connection.execute(f"SELECT count(*) FROM ({query})").fetchall()
    some = connection.execute(f"SELECT * FROM ({query}) ORDER BY ALL LIMIT {SHOWN}").fetchall()
    named = [f"{anomaly} {result if result is not None else f'{one}/{other}'}" for anomaly, one, other, result in some]
    return first(named, count)
