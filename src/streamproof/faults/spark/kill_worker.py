"""``kill_worker``: SIGKILL a Spark worker node, the worker's JVM and its executors; it is started again later.

The model: one machine of the cluster is gone. All its executors die at once, and nobody there can start others; the job has only what is
left until the machine is back.

Evidence: the worker's process is gone, the master counts it as dead, the driver lost its executor, the job committed micro-batches without
it, and the master counts as many workers as there are once it is back.
Checked against: Spark 4.1 standalone (``Master.onDisconnected`` gives a worker up at once when its connection breaks).
"""

from __future__ import annotations

import signal
from typing import Any

from streamproof.faults.outage import Killed, tell
from streamproof.faults.spark.spark_outage import WorkerOutage
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.process import same_process


class KillWorker(WorkerOutage, Killed):
    name = "kill_worker"
    summary = "SIGKILL a worker node with its executors; it is started again"
    target = "the worker node of an executor with a running task"

    def take_down(self, testbed: Testbed, target: dict[str, Any]) -> None:
        workers = [process for server in target["servers"] if (process := same_process(server)) is not None]
        executors = [executor for worker in workers for executor in worker.children(recursive=True)]
        super().take_down(testbed, target)
        tell(executors, signal.SIGKILL)
