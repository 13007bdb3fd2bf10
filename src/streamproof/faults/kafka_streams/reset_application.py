"""``reset_application``: an application on Kafka Streams is stopped, reset by Kafka's own tool, and started again.

The model: an operator who has the application compute everything anew. Its instances end, the tool sets the group's offsets of the input
back to their beginning and deletes what the application made for itself, and the instances' disks are cleared. All that was delivered
before is delivered once more -> DUPLICATED, whatever the application promises.

Meanwhile what starts the instances stands still (SIGSTOP), so that none begins too early.

Evidence: the instances were gone, the tool ended well, the group's offsets were at the beginning, and the job committed a batch afterwards.
Checked against: Kafka 4.1 (``StreamsResetter`` waits until the group has no members, or is told to ``--force`` them out).
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
from typing import Any

from streamproof import settings
from streamproof.evidence.folder import RunFolder
from streamproof.faults.fault import DRIVER, EvidenceCheck, FaultError, Parameters, RunContext, Unconditional
from streamproof.faults.process import members
from streamproof.jobs.profile import JobProfile, Role, Trait
from streamproof.testbed import install
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.kafka import Cluster
from streamproof.testbed.process import process_record, same_process, signal_recorded
from streamproof.verdict.anomaly import Anomaly

TOOL = "org.apache.kafka.tools.StreamsResetter"
ENDED_S, RESET_S, EVIDENCE_S = 30.0, 120.0, 120.0
DISKS = "streams-*"
"""What an instance keeps on its disk, below the job's state folder."""


class ResetApplication(Unconditional):
    name = "reset_application"
    summary = "Stop an application on Kafka Streams, reset it by Kafka's own tool, and start it again: all is computed anew"
    target = "the application on Kafka Streams"
    parameters_model = Parameters
    of_traits = frozenset({Trait.RESET_TOOL})
    occupies = frozenset({DRIVER})
    ends_connections = True

    def provokes(self, profile: JobProfile, parameters: dict[str, Any]) -> list[Anomaly]:
        return [Anomaly.DUPLICATED]

    def draw(self, rng: random.Random, profile: JobProfile) -> dict[str, Any] | None:
        """Not for chance: it doubles whatever was delivered."""
        return None

    def batches(self, parameters: Any) -> int:
        return 4

    def aim(self, run: RunContext, parameters: Parameters) -> dict[str, Any]:
        instances = [process_record(process) for process in run.engine.processes(run.job, Role.WORKERS)]
        return {"role": Role.WORKERS.value, "instances": instances, "starter": members.starter(run)}

    def inject(self, run: RunContext, parameters: Parameters, target: dict[str, Any]) -> None:
        signal_recorded(target["starter"], signal.SIGSTOP)
        signal_recorded(target["instances"], signal.SIGTERM)
        target["gone"] = run.eventually(lambda: not any(map(same_process, target["instances"])), ENDED_S)
        group = run.job.name
        command = [str(install.java_executable()), "-cp", f"{settings.cache() / 'jars' / 'kafka'}/*", TOOL, "--application-id", group]
        command += ["--bootstrap-server", run.testbed.direct_kafka, "--input-topics", run.job.input_topic, "--force"]
        env = {**os.environ, "LOG_DIR": str(run.folder.logs)}
        done = subprocess.run(
            command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=RESET_S, check=False
        )
        if done.returncode != 0:
            raise FaultError(f"the application was not reset: {(done.stdout + done.stderr).strip()[-2000:]}")
        target["committed"] = Cluster(run.testbed.direct_kafka).groups_on(run.job.input_topic).get(group, 0)
        for disk in run.job.state.glob(DISKS):
            shutil.rmtree(disk, ignore_errors=True)
        signal_recorded(target["starter"], signal.SIGCONT)

    def evidence(self, run: RunContext, parameters: Parameters, target: dict[str, Any]) -> list[EvidenceCheck]:
        return [
            EvidenceCheck("the instances were gone", target["gone"], f"{len(target['instances'])} of them"),
            EvidenceCheck("the group's offsets were at the beginning", not target["committed"], f"{target['committed']} records committed"),
            run.goes_on(EVIDENCE_S),
        ]

    def heal(self, testbed: Testbed, folder: RunFolder, target: dict[str, Any]) -> list[EvidenceCheck]:
        """Wake what stands still."""
        signal_recorded(target.get("starter", ()), signal.SIGCONT)
        return []


__all__ = ["ResetApplication"]
