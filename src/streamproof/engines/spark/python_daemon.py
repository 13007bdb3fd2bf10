"""Spark's Python daemon, made ready before it forks workers. The setting ``spark.python.daemon.module`` names it.

A daemon starts once an executor and forks a worker for each task slot. Two things cost far more than a small batch itself:

    Each new worker imports pandas, pyarrow and what the task needs: 1 s of processor time a worker, again after each one that died. Here
    the daemon imports them, and its children have them from the fork.

    Before each task a worker invalidates Python's import caches, so that files added to the job since are seen. For a zip archive that
    means to read its directory again, in Python, and Spark keeps pyspark in one and has 16 importers for its packages: 60 ms a task.
    Spark's own archives do not change while an application runs, and this project adds none, so archives keep what they have read.

The setting that goes with it, ``spark.python.unix.domain.socket.enabled``: over TCP on loopback a worker's first rows come 40 ms late
(Nagle's algorithm on one side waits for the delayed acknowledgement of the other), over a Unix socket at once.

What was imported before the fork is also put out of the garbage collector's sight, which Spark calls after each task: 20 ms.
"""

from __future__ import annotations

import gc
import importlib
import zipimport

READY = (
    "numpy",
    "pandas",
    "pyarrow",
    "pyarrow.compute",
    "confluent_kafka",
    "pyspark.sql.pandas.serializers",
    "pyspark.sql.pandas.types",
    "streamproof.sinks.postgres.tables",
    "streamproof.engines.spark.strategies.two_phase_commit_sink",
    "streamproof.engines.spark.strategies.offset_in_transaction_sink",
)


def make_ready() -> None:
    """Import what tasks need; keep what archives hold; freeze."""
    for name in READY:
        importlib.import_module(name)
    zipimport.zipimporter.invalidate_caches = lambda self: None  # type: ignore[method-assign]
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    from pyspark.daemon import manager

    make_ready()
    manager()  # type: ignore[no-untyped-call]
