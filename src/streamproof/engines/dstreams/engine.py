"""The engine ``dstreams``: each start is one Java, in which Spark runs with the job.

The newest published connector of DStreams for Kafka is of a preview of Spark 4.1, and calls what was changed since (``LogKeys.java``).

Checked against: Spark 4.1.3 (a ``SparkConf`` takes each system property that begins with ``spark.``; asked to end, a driver with
``spark.streaming.stopGracefullyOnShutdown`` processes what it has received first).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from streamproof.engines.command.engine import CommandEngine
from streamproof.engines.command.job import CommandJob
from streamproof.engines.dstreams.spec import DStreamsJob, DStreamsSpec
from streamproof.engines.java import compiled
from streamproof.testbed import hosts, install, spark

JARS = "dstreams"
CONF = {
    "spark.master": "local[4]",
    "spark.app.name": "dstreams",
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": hosts.listen(),
    "spark.streaming.stopGracefullyOnShutdown": "true",
}


class DStreamsEngine(CommandEngine):
    name = "dstreams"
    job_type = DStreamsJob
    spec_type = DStreamsSpec
    jars = DStreamsSpec.jars

    def command(self, job: CommandJob, known: Mapping[str, str]) -> list[str]:
        assert isinstance(job, DStreamsJob)
        jars = [*sorted((spark.spark_home() / "jars").glob("*.jar")), *spark.jars("spark"), *spark.jars(JARS)]
        lacked = compiled.classes_of([Path(__file__).with_name("LogKeys.java")], jars, job.state / "lacked")
        path = os.pathsep.join(map(str, [compiled.program(job, jars), *jars, lacked]))
        conf = [f"-D{name}={value}" for name, value in {**CONF, **job.conf}.items()]
        return [str(install.java_executable()), *job.java_options, *spark.MODULE_FLAGS, *conf, "-cp", path, job.main]
