"""Results that a query of the user's own computes again, as views: see :mod:`.results` for their names.

The query runs in a database of its own, which reaches no file; what it gives comes back as the table ``reference``. Delivered results are
taken out of their JSON by SQL. Where the outcome of a send is unknown nothing is judged here.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import duckdb

from . import files

NO_RESULT = "something that is no result"
_INPUTS = "SELECT file_row_number AS sequence, record FROM read_parquet('{file}', file_row_number = true)"
_GIVEN = """
    SELECT inputs.record, sent.producer AS _producer, sent.sequence AS _sequence, sent.partition AS _partition, sent."offset" AS _offset
    FROM sent JOIN inputs USING (sequence) WHERE sent.outcome = 'ACKED'"""
_NUMBER = r"^-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?$"
_SAME = f"""
    if(regexp_matches({{one}}, '{_NUMBER}') AND regexp_matches({{other}}, '{_NUMBER}'),
       abs(TRY_CAST({{one}} AS DOUBLE) - TRY_CAST({{other}} AS DOUBLE))
           <= 1e-9 * greatest(1, abs(TRY_CAST({{one}} AS DOUBLE)), abs(TRY_CAST({{other}} AS DOUBLE))),
       {{one}} IS NOT DISTINCT FROM {{other}})"""
_DELIVERED = """
    SELECT partition, "offset", delivered_at, readable, {values}, {name} AS name,
           if(readable, CAST(to_json([{keys}]) AS VARCHAR), NULL) AS key
    FROM (
        SELECT partition, "offset", delivered_at, {fields}, coalesce(json_type(document) = 'OBJECT' AND {there}, false) AS readable
        FROM (
            SELECT partition, "offset", delivered_at, if(json_valid(text), CAST(text AS JSON), NULL) AS document
            FROM (SELECT partition, "offset", delivered_at, TRY(decode(value)) AS text FROM payloads)))"""
_ORDERED = """
    SELECT *, min(partition) OVER of_key = max(partition) OVER of_key AS together FROM delivered_results WHERE readable
    WINDOW of_key AS (PARTITION BY key)"""
_LAST = """
    FROM ordered QUALIFY row_number() OVER (
        PARTITION BY key ORDER BY if(together, 0, epoch_ms(delivered_at)) DESC, partition DESC, "offset" DESC) = 1"""
_VIEWS = {
    "due": "SELECT name, {due} AS text FROM reference WHERE certain",
    "missing": "SELECT name, {due} AS due FROM reference ANTI JOIN delivered_results USING (key) WHERE certain",
    "unexpected": f"""
        SELECT name, NULL AS text FROM delivered_results ANTI JOIN reference USING (key) WHERE readable GROUP BY name, key
        UNION ALL
        SELECT '{NO_RESULT}', NULL FROM delivered_results WHERE NOT readable""",
    "wrong_value": """
        SELECT reference.name, NULL AS text, any_value({due}) AS due FROM judged JOIN reference USING (key)
        WHERE {differs} GROUP BY reference.name, key""",
    "repeated": """
        SELECT reference.name, count(*) AS copies FROM delivered_results JOIN reference USING (key) WHERE NOT {final}
        GROUP BY reference.name, key HAVING count(*) > 1""",
    "dropped": "SELECT start, batch, dropped, 0 AS due FROM batches WHERE false",
}


def given(connection: duckdb.DuckDBPyConnection, folder: Path) -> None:
    """What the job was given: ``inputs``, by sequence."""
    file = str(folder / "inputs.parquet").replace("'", "''")
    files.define(connection, {"inputs": _INPUTS.replace("{file}", file)})


def define(connection: duckdb.DuckDBPyConnection, computation: dict[str, Any], keep: Collection[str] = ()) -> None:
    """Define the views. ``computation`` names the ``key`` and the ``values``, and has the ``sql`` and whether the last one counts."""
    key, values, final = list(computation["key"]), list(computation["values"]), bool(computation["final"])
    _compute(connection, key, values, str(computation["sql"]))
    k, v = [f"k{number}" for number in range(len(key))], [f"v{number}" for number in range(len(values))]
    fields = zip([*k, *v], [*key, *values], strict=True)
    delivered = _DELIVERED.format(
        name=_name(key, k),
        keys=", ".join(k),
        values=", ".join(v),
        fields=", ".join(f"document->>'$.{field}' AS {column}" for column, field in fields),
        there=" AND ".join(f"json_exists(document, '$.{field}')" for field in [*key, *values]),
    )
    numbers = {
        "due": " || ', ' || ".join(f"'{name} ' || coalesce(reference.{column}, 'null')" for name, column in zip(values, v, strict=True)),
        "differs": " OR ".join("NOT " + _SAME.format(one=f"judged.{column}", other=f"reference.{column}") for column in v),
        "final": str(final),
    }
    views = {"delivered_results": delivered, "ordered": _ORDERED, "judged": _LAST if final else "FROM ordered"}
    views |= {name: query.format(**numbers) for name, query in _VIEWS.items()}
    files.define(connection, views, {"delivered_results", *keep})


def _name(names: list[str], columns: list[str]) -> str:
    parts = " || ', ' || ".join(f"'{name} ' || coalesce({column}, 'null')" for name, column in zip(names, columns, strict=True))
    return f"'the result of ' || {parts}"


def _compute(connection: duckdb.DuckDBPyConnection, key: list[str], values: list[str], sql: str) -> None:
    """Make the table ``reference``."""
    rows = connection.sql(_GIVEN).to_arrow_table()
    with duckdb.connect(config={"threads": 1, "autoinstall_known_extensions": False, "autoload_known_extensions": False}) as own:
        own.register("rows", rows)
        own.execute("CREATE TABLE given AS SELECT * REPLACE (CAST(record AS JSON) AS record) FROM rows")
        own.unregister("rows")
        ((structure,),) = own.execute("SELECT CAST(json_group_structure(record) AS VARCHAR) FROM given").fetchall()
        kinds = structure.replace('"UBIGINT"', '"BIGINT"').replace("'", "''") if structure else ""
        record = f"unnest(json_transform(record, '{kinds}')), " if kinds not in ("", "{}") else ""
        own.execute(f"CREATE TABLE input AS SELECT {record}_producer, _sequence, _partition, _offset FROM given")
        own.execute("SET enable_external_access = false")
        own.execute("SET lock_configuration = true")
        try:
            names = [name for (name,) in own.execute(f"SELECT column_name FROM (DESCRIBE ({sql}))").fetchall()]
            k = ", ".join(f'CAST("{name}" AS VARCHAR) AS k{number}' for number, name in enumerate(key))
            v = ", ".join(f'CAST("{name}" AS VARCHAR) AS v{number}' for number, name in enumerate(values))
            certain = "coalesce(CAST(due AS BOOLEAN), false)" if "due" in names else "true"
            name = _name(key, [f"k{number}" for number in range(len(key))])
            query = f"SELECT *, {name} AS name FROM (SELECT {k}, {v}, {certain} AS certain FROM ({sql}))"
            table = own.sql(query).to_arrow_table()
        except duckdb.Error as error:
            raise files.Unreadable(f"the reference cannot be evaluated: {error}") from error
    connection.register("taken", table)
    keys = ", ".join(f"k{number}" for number in range(len(key)))
    connection.execute(f"CREATE OR REPLACE TABLE reference AS SELECT *, CAST(to_json([{keys}]) AS VARCHAR) AS key FROM taken")
    connection.unregister("taken")
