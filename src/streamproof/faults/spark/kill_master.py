"""``kill_master``: SIGKILL Spark's master; it is started again later.

The model: the machine of the cluster manager is gone. Executors and driver talk to each other without it, so the job goes on, but an
executor that dies now is not replaced.

A master that remembers nothing would, once it is back, tell its workers to end executors of an application that it does not know: the job
would make no progress any more. So the master keeps what it knows on disk (``spark.deploy.recoveryMode=FILESYSTEM``), which a standalone
cluster needs for this fault to be harmless.

Evidence: its process is gone and its port refuses connections, the job committed micro-batches without it, and the master that comes back
has its workers and knows the application as running.
Checked against: Spark 4.1 standalone (``Master.completeRecovery``; ``Worker`` and ``StandaloneAppClient`` are told of the new master).
"""

from __future__ import annotations

from typing import Any

from streamproof.faults.fault import EvidenceCheck, RunContext
from streamproof.faults.outage import Killed
from streamproof.faults.spark.spark_outage import NOTICE_S, SparkOutage, SparkOutageParameters, knows_application
from streamproof.testbed import hosts, spark
from streamproof.testbed.process import listening


class KillMaster(SparkOutage, Killed):
    role = "spark-master"
    name = "kill_master"
    summary = "SIGKILL Spark's master; it is started again on what it had on disk"
    target = "the master"

    def aim(self, run: RunContext, parameters: SparkOutageParameters) -> dict[str, Any]:
        return {**super().aim(run, parameters), "application": run.driver()["application"]}

    def noticed(self, run: RunContext, target: dict[str, Any]) -> list[EvidenceCheck]:
        port = run.testbed.spark.master
        refused = run.eventually(lambda: not listening(hosts.of(spark.MASTER), port), NOTICE_S)
        return [EvidenceCheck("the master's port refuses connections", refused, f"{hosts.of(spark.MASTER)}:{port}")]

    def returned(self, run: RunContext, target: dict[str, Any]) -> list[EvidenceCheck]:
        running = run.eventually(lambda: knows_application(run.testbed, target["application"]), NOTICE_S)
        return [EvidenceCheck("the master that came back knows the application as running", running, target["application"])]
