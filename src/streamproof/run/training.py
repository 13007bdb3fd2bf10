"""The last part of the set-up: run small jobs on all that was put in place, and let their JVMs write down which classes they loaded.

It starts a testbed of its own and takes it down again. The jobs run in one application, one after the other: one delivers to Kafka, one to
each format of tables (:mod:`streamproof.run.training_jobs`). A job that does not deliver what it was sent
fails the set-up: something that was put in place does not work. A JVM that starts from a class-data archive skips loading and verifying
thousands of classes; measured, a Spark application is up in 6 s instead of 17. Without the archives everything works the same, only slower,
so a failure to write them is a warning.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import psutil

from streamproof import settings
from streamproof.engines.spark.job import SparkJob
from streamproof.engines.spark.registry import STRATEGIES
from streamproof.evidence.folder import EvidenceError, RunFolder
from streamproof.experiment.model import Experiment
from streamproof.load import workload
from streamproof.load.spec import Source, Workload
from streamproof.run import stages, training_jobs
from streamproof.sinks import outputs
from streamproof.testbed import embedded, install, java, spark
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.process import TestbedError, running, stopped, tail, wait_until

RECORDS = 4000
RUN_S = 600.0  # it takes some 20 s on two cores that are free, and minutes where many others want them
END_S = 180.0
DRAIN_S = 60.0
DUMP_S = 180.0
ROLES = ("spark-driver", "spark-executor")
TABLES = ("delta_sink", "iceberg_sink")


class ArchivesMissing(Exception):
    """The job did what it should, but its JVMs did not write their archives."""


def stamp() -> str:
    """What the archives depend on: the jars, Spark, and the Java that wrote them.

    A JVM passes over an archive without a word when a jar has another age than it had: the same jar, installed anew, may have.
    """
    parts = [
        install.JARS_LOCK.read_text(),
        str(install.java_executable()),
        str(install.java_executable().stat().st_mtime),
    ]
    jars = [*(spark.spark_home() / "jars").glob("*.jar"), *spark.job_jars()]
    parts += [f"{jar} {jar.stat().st_size} {int(jar.stat().st_mtime)}" for jar in sorted(jars)]  # in seconds, as the JVM compares it
    parts += [sys.prefix, str(settings.cache()), *sorted(f"{key}={value}" for key, value in stages.versions().items())]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _stamp() -> Path:
    return java.archive("stamp").with_suffix(".txt")


def trained() -> bool:
    return _stamp().exists() and _stamp().read_text() == stamp() and all(java.archive(role).is_file() for role in ROLES)


def train(say: Callable[[str], None]) -> None:
    """Make the archives if they are missing or stale. Raises TestbedError when the job does not deliver what it was sent, ArchivesMissing
    when it does and its JVMs write no archives."""
    if trained():
        return
    directory = java.archive("any").parent
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    _owner(directory).write_text(sys.prefix)
    _forget_checkouts_that_are_gone(directory.parent)
    say("a small job: starting a testbed")
    try:
        testbed = embedded.up()
        source = Workload(source=Source.SYNTHETIC, records=RECORDS)
        experiment = Experiment(name="training", strategy="two_phase_commit", workload=source, seed=1)
        folder = stages.create(experiment, owner=os.getpid())  # the watchdog ends a run without an owner a minute after its last stage
        stages.prepare(folder)
        jobs = [_dumping(SparkJob.read(folder)), *_tables(SparkJob.read(folder), testbed)]
        for job in jobs:
            job.write()
        say(f"small jobs: sending {RECORDS} records through Kafka and Spark to {', '.join(job.sink for job in jobs)}")
        _run(jobs, testbed, say)
        _check_use(folder)
        say("class-data archives: written, and used")
    finally:
        embedded.down()
    _stamp().write_text(stamp())


def _owner(directory: Path) -> Path:
    return directory / "checkout.txt"


def _forget_checkouts_that_are_gone(archives: Path) -> None:
    """Checkouts may share a cache, and archives take 250 MB for each."""
    for owner in archives.glob("*/checkout.txt"):
        if not Path(owner.read_text()).exists():
            shutil.rmtree(owner.parent, ignore_errors=True)


def _dumping(job: SparkJob) -> SparkJob:
    """The job with one executor, and with JVMs that write their archives at exit."""
    flags = {
        role: " ".join([*java.QUICK_START, f"-XX:ArchiveClassesAtExit={java.archive(role)}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"])
        for role in ROLES
    }
    changed = {"spark.driver.extraJavaOptions": flags["spark-driver"], "spark.executor.extraJavaOptions": flags["spark-executor"]}
    formats = [STRATEGIES[name].settings for name in TABLES]
    extensions = ",".join(settings["spark.sql.extensions"] for settings in formats)
    together = {key: value for settings in formats for key, value in settings.items()} | {"spark.sql.extensions": extensions}
    return replace(job, spark={**job.spark, **changed, **together, "spark.cores.max": job.spark["spark.executor.cores"]})


def _tables(job: SparkJob, testbed: Testbed) -> list[SparkJob]:
    """Jobs that read the same topic into a table of each format, in folders below the job's own."""
    jobs = []
    for name in TABLES:
        folder = RunFolder.create(job.run.path / name)
        lake = replace(job, folder=str(folder.path), strategy=name, sink=STRATEGIES[name].sink, batch_records=RECORDS // 2)
        outputs.of(lake).create(lake, testbed, 1)
        jobs.append(lake)
    return jobs


def _run(jobs: list[SparkJob], testbed: Testbed, say: Callable[[str], None]) -> None:
    folder = jobs[0].run
    sender = workload.Sender(folder, testbed.direct_kafka, jobs[0].input_topic)
    sender.send(0, list(workload.events(stages.load(folder).workload, 1)), sender.partitions())
    output = folder.logs / "driver.log"
    env = spark.driver_environment(spark.secret_file(embedded.folder()))
    with output.open("wb") as file:
        child = subprocess.Popen(
            [sys.executable, "-m", "streamproof.run.training_jobs", *(job.folder for job in jobs)],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            env=env,
        )

    def finished() -> bool:
        if child.poll() is not None:
            raise TestbedError(f"their driver ended with exit code {child.returncode}.")
        return (folder.path / training_jobs.DONE).exists()

    try:
        try:
            wait_until("the small jobs", finished, RUN_S)
        except TestbedError as error:
            raise TestbedError(f"the small jobs: {error} Their log ends with:\n{tail(output)}") from error
        for job in jobs:
            delivered = outputs.of(job).drain(job.run, job, testbed, DRAIN_S)["records"]
            if delivered != RECORDS:
                raise TestbedError(f"the small job to {job.sink} delivered {delivered} records, expected {RECORDS}")
            say(f"a small job to {job.sink}: {RECORDS} of {RECORDS} records delivered")
        _await_archives(folder, child)
    finally:
        child.kill()


def _await_archives(folder: RunFolder, child: subprocess.Popen[bytes]) -> None:
    """End the job, and wait until its JVMs have written their archives. Raises ArchivesMissing."""
    jvm = int(folder.read_json(folder.path / "driver.json")["jvm_pid"])
    try:
        with _workers_stopped():
            (folder.path / "stop").touch()
            child.wait(END_S)
            wait_until("the driver to write its archive", lambda: not psutil.pid_exists(jvm), DUMP_S)
            wait_until("the archives", lambda: all(_settled(role) for role in ROLES), DUMP_S, poll_s=0.5)
    except (TestbedError, subprocess.TimeoutExpired) as error:
        raise ArchivesMissing(str(error)) from error


STARTS_A_JVM = """
import json, sys
from pyspark import SparkConf
from pyspark.java_gateway import launch_gateway
launch_gateway(SparkConf(False).setAll(json.loads(sys.argv[1]).items())).proc.stdin.close()
"""


def _check_use(folder: RunFolder) -> None:
    """Start a driver's JVM from its archive. Raises ArchivesMissing when the JVM does not use it: by itself it says nothing then.

    Java 21, for one, writes an archive for the class path that Spark's launcher makes and refuses it afterwards, because a jar is in that
    path twice.
    """
    complaints = folder.logs / "archive.log"
    flags = [*java.QUICK_START, f"-XX:SharedArchiveFile={java.archive('spark-driver')}", f"-Xlog:cds*=warning:file={complaints}"]
    options = {"spark.driver.extraClassPath": spark.class_path(), "spark.driver.extraJavaOptions": " ".join(flags)}
    command = [sys.executable, "-c", STARTS_A_JVM, json.dumps(options)]
    env = spark.driver_environment(spark.secret_file(embedded.folder()))
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=END_S, check=False)
    if done.returncode != 0 or not complaints.exists():
        raise ArchivesMissing(f"no JVM starts from the archive: {done.stderr[-500:]}")
    if complaint := complaints.read_text().strip():
        raise ArchivesMissing(f"this Java does not use the archive that it wrote: {complaint.splitlines()[0]}")


def _workers_stopped() -> AbstractContextManager[None]:
    """A worker SIGKILLs an executor 10 s after its application has ended; on a busy machine an executor writes its archive for longer."""
    handles = [running(f"spark-{worker}", embedded.folder()) for worker in spark.WORKERS]
    return stopped([process for handle in handles if handle is not None and (process := handle.process()) is not None])


def _settled(role: str) -> bool:
    """Whether the archive is there and no longer grows."""
    path = java.archive(role)
    if not path.is_file():
        return False
    size = path.stat().st_size
    time.sleep(0.5)
    return size > 0 and path.stat().st_size == size


def try_out(say: Callable[[str], None]) -> None:
    """Train on a testbed of its own, apart from any that is in use. Raises TestbedError when the job did not do what it should."""
    if trained():
        return
    cache, before = settings.cache(), os.environ.get("STREAMPROOF_HOME")
    home = cache / f"training-{java.archive('any').parent.name}"
    os.environ |= {"STREAMPROOF_CACHE": str(cache), "STREAMPROOF_HOME": str(home)}
    try:
        train(say)
    except ArchivesMissing as error:
        say(f"warning: no class-data archives, every Spark start takes some 10 s longer: {error}")
        _stamp().write_text(f"failed: {error}")
    except (TestbedError, EvidenceError, OSError) as error:
        raise TestbedError(f"what was put in place does not work: {error}\nMend it, then run {install.SET_UP} again.") from error
    finally:
        shutil.rmtree(home, ignore_errors=True)
        if before is None:
            del os.environ["STREAMPROOF_HOME"]
        else:
            os.environ["STREAMPROOF_HOME"] = before
