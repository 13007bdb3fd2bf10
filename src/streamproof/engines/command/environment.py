"""What a start of a job is told, and where: addresses and names as placeholders in its command line and as environment variables.

A job has an environment of its own. Of the environment of the process that runs streamproof it gets what is not streamproof's or Airflow's:
neither ``PYTHONPATH`` nor ``VIRTUAL_ENV``, no ``STREAMPROOF_*``, no ``AIRFLOW*``.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from streamproof.engines.command.job import CommandJob
from streamproof.engines.command.placeholders import filled
from streamproof.sinks.own_schema import schema_of
from streamproof.testbed import hosts, install, scratch, spark
from streamproof.testbed.embedded import Testbed

FORMATS = {"delta_rows": "delta", "iceberg_rows": "iceberg", "iceberg_folder_rows": "iceberg"}
"""The sets of jars that a job needs to deliver to a table of a format."""
_OURS = re.compile(r"STREAMPROOF_.*|_?AIRFLOW.*|PYTHONPATH|PYTHONHOME|VIRTUAL_ENV|PYSPARK_SUBMIT_ARGS")


def values(job: CommandJob, testbed: Testbed) -> dict[str, str]:
    """What each placeholder stands for in this start."""
    schema, access = schema_of(job), job.kafka.access
    jars = [*spark.jars("jdbc"), *spark.connector_jars()]
    jars += spark.jars(FORMATS[job.sink]) if job.sink in FORMATS else []
    return {
        "python": job.interpreter or sys.executable,
        "bootstrap_servers": job.bootstrap,
        "security_protocol": access.protocol,
        "sasl_mechanism": access.mechanism,
        "ssl_ca": access.ca,
        "ssl_certificate": access.certificate,
        "ssl_key": access.key,
        "kafka_properties": access.properties,
        "input_topic": job.input_topic,
        "output_topic": job.output_topic,
        "group": job.consumer_group,
        "job": job.name,
        "state_folder": str(job.state),
        "checkpoint": str(job.state / "checkpoint"),
        "output_folder": str(job.output_folder),
        "start": str(job.start),
        "batch_records": str(job.batch_records),
        "transaction_timeout_ms": str(job.transaction_timeout_ms),
        "jdbc_url": testbed.pipeline_server.jdbc(schema),
        "postgres": f"{job.postgres} options='-c search_path={schema}'",
        "schema": schema,
        "table": job.output.get("table", ""),
        "spark_master": testbed.spark_master,
        "spark_properties": str(testbed.spark_properties or ""),
        "spark_jars": ",".join(map(str, jars)),
    }


def _secrets(job: CommandJob) -> dict[str, str]:
    """What its environment alone holds."""
    user, password = job.kafka.access.login() if job.kafka.access.mechanism else ("", "")
    return {"sasl_username": user, "sasl_password": password}


def environment(job: CommandJob, testbed: Testbed, known: Mapping[str, str]) -> dict[str, str]:
    """The whole environment of a start; ``known`` is what the placeholders stand for."""
    own = {name: value for name, value in os.environ.items() if not _OURS.fullmatch(name)}
    python, known = known["python"], {**known, **_secrets(job)}
    defaults = {"JAVA_HOME": str(install.java_home()), "SPARK_LOCAL_IP": hosts.here(), "PYSPARK_PYTHON": python}
    path = os.pathsep.join([str(Path(python).parent), own.get("PATH", os.defpath)])
    return {
        **defaults,
        **own,
        **scratch.variables(job.run.path, own),
        "PATH": path,
        "PGPASSFILE": str(testbed.pipeline_server.passfile),
        **{name: filled(value, known) for name, value in job.env.items()},
        **{f"STREAMPROOF_{name.upper()}": value for name, value in known.items()},
    }
