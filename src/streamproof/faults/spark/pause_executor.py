"""``pause_executor``: SIGSTOP an executor's JVM until the driver has given it up, then let it go on.

The model: a garbage collection that takes longer than ``spark.network.timeout``. The tasks it holds are run again elsewhere; its Python
workers are not paused and may finish what they have begun. When it wakes, it finds that it was replaced.

Evidence: its process is stopped, the driver lost it, the job committed micro-batches without it, and once it was woken it ended.
Checked against: Spark 4.1 standalone (``HeartbeatReceiver`` expires an executor and has it replaced; the worker ends its process by
SIGTERM, which a stopped one takes when it is woken, and 10 s later by SIGKILL).
"""

from __future__ import annotations

import signal
from typing import Any

from streamproof.faults.fault import EvidenceCheck, RunContext
from streamproof.faults.outage import Paused, signalled
from streamproof.faults.spark import executors
from streamproof.faults.spark.spark_outage import NOTICE_S, SparkOutage, SparkOutageParameters
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.process import same_process


class PauseExecutor(SparkOutage, Paused):
    name = "pause_executor"
    summary = "SIGSTOP an executor's JVM until the driver has given it up, then wake it"
    target = "an executor with a running task"

    def aim(self, run: RunContext, parameters: SparkOutageParameters) -> dict[str, Any]:
        executor, _ = executors.at_work(run)
        return {"role": self.target, "servers": [{"server": f"executor {executor['executor']}", **executor}]}

    def take_down(self, testbed: Testbed, target: dict[str, Any]) -> None:
        for executor in target["servers"]:
            signalled(executor, signal.SIGSTOP)

    def noticed(self, run: RunContext, target: dict[str, Any]) -> list[EvidenceCheck]:
        (executor,) = target["servers"]
        lost = run.eventually(lambda: executors.driver_lost(executor), NOTICE_S)
        return [EvidenceCheck(f"the driver lost {executor['server']}", lost, f"it held {executor['running_tasks']} running tasks")]

    def returned(self, run: RunContext, target: dict[str, Any]) -> list[EvidenceCheck]:
        (executor,) = target["servers"]
        ended = run.eventually(lambda: same_process(executor) is None, NOTICE_S)
        return [EvidenceCheck(f"{executor['server']} ended once it was woken", ended, f"pid {executor['pid']}")]
