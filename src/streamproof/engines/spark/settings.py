"""The Spark settings of a job under test: small, quick to start, and with every limit that a fault would run into out of the way."""

from __future__ import annotations

import sys
from pathlib import Path

from streamproof import settings
from streamproof.engines.spark.strategies.strategy import Strategy
from streamproof.jobs.engine import EXECUTOR_MARK
from streamproof.jobs.state_store import StateStore
from streamproof.testbed import hosts, java, spark
from streamproof.testbed.process import MARK

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def of_run(folder: Path, strategy: Strategy, *, state: StateStore | None, half: bool = False) -> dict[str, str]:
    """The settings for the job of the run in ``folder``. ``state`` is where it keeps state, None for a job without. With ``half`` it takes
    half of each worker, so that another start fits beside it."""
    cores = spark.WORKER_CORES // 2 if half else spark.WORKER_CORES
    class_path = spark.class_path()
    flags = " ".join([*java.QUICK_START, *java.archive_flags("spark-driver"), *failpoint_flags(folder)])
    executor_flags = " ".join([*java.QUICK_START, *java.archive_flags("spark-executor"), *failpoint_flags(folder)])
    return {
        "spark.driver.host": hosts.here(),
        "spark.driver.bindAddress": hosts.listen(),
        "spark.driver.memory": "768m",
        "spark.driver.extraClassPath": class_path,
        "spark.driver.extraJavaOptions": flags,
        "spark.executor.extraClassPath": class_path,
        "spark.executor.extraJavaOptions": executor_flags,
        "spark.executor.memory": "768m",
        "spark.executor.cores": str(cores),
        "spark.cores.max": str(cores * len(spark.WORKERS)),
        "spark.executorEnv.PYTHONPATH": settings.python_path(),
        f"spark.executorEnv.{EXECUTOR_MARK}": folder.name,
        f"spark.executorEnv.{MARK}": str(settings.home()),  # by it executors are found that a worker of another Spark has started
        "spark.pyspark.python": sys.executable,
        # What these save, a task and a worker, is told there.
        "spark.python.daemon.module": "streamproof.engines.spark.python_daemon",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.ui.port": "0",
        "spark.ui.showConsoleProgress": "false",
        "spark.ui.killEnabled": "false",
        # Faults find an executor at work by what the UI says; by default it says so up to 100 ms late, when a short task has ended.
        "spark.ui.liveUpdate.period": "0",
        # A killed executor counts as a failure of its tasks; the default of 4 would end the query at the fourth kill.
        "spark.task.maxFailures": "20",
        "spark.locality.wait": "0s",
        "spark.sql.shuffle.partitions": "2" if state is not None else "4",
        "spark.sql.streaming.noDataProgressEventInterval": "1000",
        "spark.network.timeout": "30s",
        "spark.network.timeoutInterval": "10s",
        "spark.executor.heartbeatInterval": "5s",
        "spark.executor.processTreeMetrics.enabled": "false",
        **({"spark.sql.streaming.stateStore.providerClass": ROCKSDB} if state is StateStore.ROCKSDB else {}),
        **strategy.settings,
    }


def failpoint_flags(folder: Path) -> list[str]:
    """What tells ``streamproof-kafka`` where its failpoints are armed, and what to run there (:mod:`streamproof.engines.spark.reach`)."""
    return [f"-Dstreamproof.run={folder}", f"-Dstreamproof.python={sys.executable}"]
