"""``--spark MASTER``: a run judged by a Spark job, on the testbed's own Spark or on one that runs elsewhere.

The session's driver is this machine. Its JVM, and all that it writes, is gone when the session ends; what it has to say stands in the error
when there is one.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from streamproof.errors import BadInput
from streamproof.evidence.folder import EvidenceError, RunFolder
from streamproof.testbed import embedded, install, spark
from streamproof.testbed.process import TestbedError, tail
from streamproof.verdict.judge import Judgement, RunSpec, judge
from streamproof.verdict.scan import spark_scan

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

TESTBED = "testbed"
ANSWER_S = 5.0
EXECUTOR_S = 60.0
END_S = 20.0
POLL_S = 0.1
_LOCAL = re.compile(r"local(\[([1-9]\d*|\*)\])?")
_STANDALONE = re.compile(r"spark://[^\s:,/]+:\d{1,5}(,[^\s:,/]+:\d{1,5})*")
_SENTENCE = re.compile(r"\[[A-Z0-9_]+(\.[A-Z0-9_]+)?\] [^\n]*")
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
}


def judged(folder: RunFolder, spec: RunSpec, master: str) -> Judgement:
    """What :func:`streamproof.verdict.judge.judge` says, where Spark compares the histories; the verdict's notes say so.

    Raises BadInput for a master that is none and a run that Spark cannot judge, EvidenceError as the local check does, TestbedError when
    no Spark job could be run there.
    """
    preflight(master, stateful=spec.of_results, counted=spec.counted)
    where = embedded.current().spark_master if master == TESTBED else master
    with session(where) as opened, _told(where, folder):
        judgement = judge(folder, spec, partial(spark_scan.scan_histories, opened))
    note = f"the histories were compared by a Spark job on {where}"
    return replace(judgement, verdict=judgement.verdict.model_copy(update={"notes": (*judgement.verdict.notes, note)}))


def preflight(master: str, *, stateful: bool, counted: bool) -> None:
    """What can be known before a run that is to be judged so: raises BadInput when ``master`` names no master or the job is one that Spark
    cannot judge, TestbedError when no master answers there."""
    if master != TESTBED and not _LOCAL.fullmatch(master) and not _STANDALONE.fullmatch(master):
        raise BadInput(f"--spark: expected {TESTBED}, local[N] or spark://HOST:PORT, came {master!r}")
    if stateful:
        raise BadInput("--spark compares records, and this job delivers results: they are computed again on this machine, without --spark")
    if counted:
        raise BadInput(
            "--spark compares records that are due once each, and `expected` says otherwise of this job: it is judged on this machine, "
            "without --spark"
        )
    if _STANDALONE.fullmatch(master):
        _address_towards(master)


@contextmanager
def session(where: str, settings: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """A session on that master. Raises TestbedError when nobody answers there, or gives no executor."""
    import pyspark
    from py4j.protocol import Py4JError
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    here = "127.0.0.1" if _LOCAL.fullmatch(where) else _address_towards(where)
    with tempfile.TemporaryDirectory(prefix="streamproof-check-") as scratch:
        own = {"spark.driver.host": here, "spark.driver.bindAddress": here, "spark.local.dir": scratch, "spark.sql.warehouse.dir": scratch}
        conf = SparkConf().setMaster(where).setAppName("streamproof check").setAll([*{**_SETTINGS, **own, **(settings or {})}.items()])
        with _jvm(conf, Path(scratch) / "spark.log") as gateway:
            try:
                with _own_signals():
                    opened = SparkSession(SparkContext(conf=conf, gateway=gateway))
            except (Py4JError, PySparkException) as error:
                raise TestbedError(f"{where} takes no job ({_sentence(error)}): is it a master of Spark {pyspark.__version__}?") from error
            try:
                if not _LOCAL.fullmatch(where):
                    _await_executor(opened, where)
                yield opened
            finally:
                with contextlib.suppress(Py4JError, OSError):  # the JVM may have died, of which its caller has been told
                    opened.stop()


def _address_towards(where: str) -> str:
    """The address of this machine from which the master can be reached, and which it can reach."""
    problem: Exception | None = None
    for address in where.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        try:
            with socket.create_connection((host, int(port)), ANSWER_S) as connection:
                return str(connection.getsockname()[0])
        except (OSError, OverflowError) as error:
            problem = error
    raise TestbedError(f"--spark: no master answers at {where} ({problem}): does it run, and may this machine reach it?")


@contextmanager
def _jvm(conf: SparkConf, log: Path) -> Iterator[JavaGateway]:
    """A JVM for the driver, which writes to a file and not among what this command says; it is gone afterwards.

    PySpark keeps the gateway to its JVM for the life of the process, and would give a later session one that is gone.
    """
    from pyspark import SparkContext
    from pyspark.errors import PySparkException
    from pyspark.java_gateway import launch_gateway

    with log.open("wb") as output, _launcher_environment(str(conf.get("spark.master"))):
        try:
            gateway = launch_gateway(conf, {"stdout": output, "stderr": output})  # type: ignore[no-untyped-call]
        except PySparkException as error:
            raise TestbedError(f"--spark: no JVM could be started for the driver; it said:\n{tail(log)}") from error
    try:
        yield gateway
    finally:
        SparkContext._gateway = SparkContext._jvm = None
        gateway.shutdown()
        gateway.proc.stdin.close()  # at which it ends
        try:
            gateway.proc.wait(END_S)
        except subprocess.TimeoutExpired:
            gateway.proc.kill()
            gateway.proc.wait()


@contextmanager
def _launcher_environment(where: str) -> Iterator[None]:
    """Spark's launcher looks for Java, and for the file with the testbed's secret, in the environment of this process."""
    environment = {"JAVA_HOME": str(install.java_home())}
    testbed = embedded.started()
    if testbed is not None and where == testbed.spark_master:
        environment["PYSPARK_SUBMIT_ARGS"] = spark.submit_arguments(testbed.spark_properties)
    before = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _own_signals() -> Iterator[None]:
    """PySpark puts a handler of its own in the place of that by which a run is stopped."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def _await_executor(opened: SparkSession, where: str) -> None:
    """A master without a worker that is free keeps an application waiting for ever."""
    until = time.monotonic() + EXECUTOR_S
    while opened.sparkContext._jsc.sc().getExecutorMemoryStatus().size() < 2:  # the driver is one of them
        if time.monotonic() > until:
            raise TestbedError(f"--spark: {where} gave no executor within {EXECUTOR_S:g} s: has it a worker with a free core, and memory?")
        time.sleep(POLL_S)


@contextmanager
def _told(where: str, folder: RunFolder) -> Iterator[None]:
    """What Spark complains of, as an error of one line."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JError, PySparkException) as error:
        message = _sentence(error)
        if message.startswith("[FAILED_READ_FILE.FILE_NOT_EXIST]"):
            raise TestbedError(f"--spark: a machine of {where} does not see {folder.path}, which must be there under this path") from error
        if message.startswith("[FAILED_READ_FILE"):
            raise EvidenceError(f"{folder.path}: a file cannot be read as evidence: {message}") from error
        raise TestbedError(f"the Spark job on {where} failed: {message}") from error


def _sentence(error: Exception) -> str:
    """Of what Java says, with all its causes and traces, the sentence in which Spark names the error; else the first one."""
    from py4j.protocol import Py4JError

    try:
        text = str(error)  # which asks the JVM
    except (Py4JError, OSError):
        return "its JVM ended, or does not answer"
    if (match := _SENTENCE.search(text)) is not None:
        return match[0]
    java = (line.removeprefix(": ") for line in text.splitlines() if line.startswith(": "))
    return next(java, text.partition("\n")[0])
