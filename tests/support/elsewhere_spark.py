"""A Spark standalone cluster that somebody else runs: a master and a worker of another process tree, in another folder, which know nothing
of the testbed and its secret."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from streamproof.testbed import spark
from streamproof.testbed.external_spark import Spark
from streamproof.testbed.process import FreePorts, wait_until

READY_S = 90.0


@contextmanager
def elsewhere_spark() -> Iterator[Spark]:
    """It is gone afterwards, with the executors that it started."""
    folder = Path(tempfile.mkdtemp(prefix="streamproof-elsewhere-spark-")).resolve()
    running: list[subprocess.Popen[bytes]] = []
    base = spark._environment("127.0.0.1")
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(folder), **base}
    try:
        with FreePorts() as free:
            master, ui, port, worker_ui = (free.take() for _ in range(4))
            there = Spark(master=f"spark://127.0.0.1:{master}", ui=f"127.0.0.1:{ui}")
            commands = {
                "master": ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(master), "--webui-port", str(ui)],
                "worker": [
                    *("org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(worker_ui)),
                    *("--cores", "4", "--memory", "3g", "--work-dir", str(folder / "work"), there.master),
                ],
            }
            for name, (main, *arguments) in commands.items():
                with open(folder / f"{name}.log", "wb") as log:
                    command = spark._command(main, *arguments, role="spark-daemon")
                    process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, env=environment, start_new_session=True)
                running.append(process)

            def counted() -> bool:
                try:
                    return bool(there.workers())
                except spark.TestbedError:
                    return False

            wait_until("another Spark: its worker alive", counted, READY_S)
        yield there
    finally:
        for process in reversed(running):
            process.send_signal(signal.SIGTERM)
            process.wait(30)
        shutil.rmtree(folder, ignore_errors=True)
