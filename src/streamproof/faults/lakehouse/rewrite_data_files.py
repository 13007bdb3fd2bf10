"""Compaction of an Iceberg table as its users do it: the procedure ``rewrite_data_files`` of Iceberg's extension of Spark, in a Spark of
its own beside the job. pyiceberg has no such thing; its ``overwrite`` says that rows were deleted and rows were added, where a compaction
says that files were replaced (the operation ``replace``).

A program: ``python -m streamproof.faults.lakehouse.rewrite_data_files`` with the arguments as JSON. It has no executors, takes nothing of
the testbed's Spark, and ends with its work.
"""

from __future__ import annotations

import json
import subprocess
import sys

from psycopg.conninfo import conninfo_to_dict

from streamproof.engines.spark.strategies.iceberg_sink import SETTINGS
from streamproof.faults.fault import FaultError, RunContext
from streamproof.jobs.engine import RUN_MARK
from streamproof.sinks.iceberg.catalog import NAME, Catalog
from streamproof.sinks.own_schema import schema_of
from streamproof.testbed import hosts, java, scratch, spark

LONGEST_S = 240.0
OF_THE_LAKE = "spark.sql.catalog.lake"


def rewrite_data_files(run: RunContext, namespace: str, table: str) -> None:
    """Rewrite all data files of a table as few. Raises FaultError when that failed, or was not done in time."""
    schema, conninfo = schema_of(run.job), run.testbed.direct_postgres
    address = conninfo_to_dict(conninfo)
    place = f"{address['host']}:{address['port']}/{address['dbname']}?user={address['user']}&currentSchema={schema}"
    asked = {
        "catalog": Catalog(conninfo, schema).name_of(namespace, table) or NAME,
        "uri": f"jdbc:postgresql://{place}",
        "passfile": address["passfile"],
        "warehouse": f"file://{run.job.files}",
        "table": f"{namespace}.{table}",
    }
    environment = spark.driver_environment(None)  # its master is local
    command = [sys.executable, "-m", __name__, json.dumps(asked)]
    try:
        done = subprocess.run(
            command,
            env={**environment, **scratch.variables(run.folder.path, environment), RUN_MARK: f"{run.folder.name} maintenance"},
            capture_output=True,
            text=True,
            timeout=LONGEST_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise FaultError(f"the table was not compacted within {LONGEST_S:.0f} s") from error
    (run.folder.logs / "rewrite_data_files.log").write_text(done.stdout + done.stderr)
    if done.returncode:
        raise FaultError(f"the table was not compacted: {done.stderr.strip()[-300:]}")


def main() -> None:
    from pyspark.sql import SparkSession

    asked = json.loads(sys.argv[1])
    flags = [*java.QUICK_START, *java.archive_flags("spark-driver"), f"-Dorg.postgresql.pgpassfile={asked['passfile']}"]
    settings = {
        **{key.replace(OF_THE_LAKE, f"spark.sql.catalog.{asked['catalog']}"): value for key, value in SETTINGS.items()},
        f"spark.sql.catalog.{asked['catalog']}.uri": asked["uri"],
        f"spark.sql.catalog.{asked['catalog']}.warehouse": asked["warehouse"],
        "spark.driver.host": hosts.here(),
        "spark.driver.bindAddress": hosts.listen(),
        "spark.driver.memory": "512m",
        "spark.driver.extraClassPath": spark.class_path(),
        "spark.driver.extraJavaOptions": " ".join(flags),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "1",
    }
    builder = SparkSession.builder.appName("maintenance").master("local[1]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    options = "map('rewrite-all', 'true')"
    session.sql(f"CALL {asked['catalog']}.system.rewrite_data_files(table => '{asked['table']}', options => {options})").show()
    session.stop()


if __name__ == "__main__":
    main()
