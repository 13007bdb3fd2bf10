"""``pause_worker``: SIGSTOP a Spark worker node with its executors until it was given up, then let it go on.

The model: a virtual machine that is moved, a host that swaps. Master and driver give the node up and run its tasks elsewhere; then it
comes back and carries on where it was, with tasks that nobody waits for any more. Such a *zombie* still writes to the sink: what it does
there must not count.

Evidence: its process is stopped, the master counts it as dead, the driver lost its executor, the job committed micro-batches without it;
once it was woken, the worker is back with the master and the executor has ended.
Checked against: Spark 4.1 standalone (a worker that was given up is told to register anew; an executor that the driver does not know any
more ends itself).
"""

from __future__ import annotations

from streamproof.faults.outage import Paused
from streamproof.faults.spark.spark_outage import WorkerOutage


class PauseWorker(WorkerOutage, Paused):
    name = "pause_worker"
    summary = "SIGSTOP a worker node with its executors until it was given up, then wake it"
    target = "the worker node of an executor with a running task"
