"""The suites that judge a run's data, as expectations of Great Expectations, in SQL over the run's own files.

This package needs Great Expectations, DuckDB and duckdb-engine, and nothing else of this product: its modules import each other and no
other module of ``streamproof``. So a copy of this folder, beside a run's folder, is enough to judge the run again::

    import great_expectations as gx
    from expectations import database, runs  # the copy

    config = database.settings("spill")
    with database.building("RUN", "run.duckdb", config):  # the run's files as views and tables
        pass
    batch = runs.batch(gx.get_context(mode="ephemeral"), "run.duckdb", config)
    print(batch.get_batch().validate(runs.suite("expectations/exactly-once.json")).success)

What lies here:
    *.json       the suites, in Great Expectations' own format
    database     opens a run's folder as a DuckDB database
    records      the anomalies of records: ``lost``, ``duplicated``, ... as views over what was sent and what was delivered
    results      the anomalies of a stateful job's results: ``missing``, ``wrong_value``, ... by computing the results again
    faults       what the journal says of the faults, and when the job came back
    runs         the expectations themselves, which Great Expectations finds by their names once this module is imported
"""
