"""``twin_driver``: the driver stops between two steps of its commit protocol, another takes its place, and then it wakes up.

The model: a machine that stands still for a while (a long garbage collection, a virtual machine that is moved, a network that is cut in
two). The cluster manager takes it for dead and starts the job elsewhere; later it goes on where it stood, and knows nothing of the other.
Only fencing helps: a transactional id that is the same for both, a generation of the consumer group, a condition on what was written.

The driver gets SIGSTOP while a message at the window's edge is held: the answer to the step that begins it, or where that is a file the
request that ends it. The next start is launched beside it. Once that has committed a micro-batch, or after ``takeover_s``, the message goes
on and the driver gets SIGCONT. It is killed once it has had time to do harm.

With ``step`` it is stopped at a step of a commit strategy instead, which names moments that no message shows: between the files of a
Delta table and the version that names them.

The executors of a driver that stands still keep their place in the cluster. A built-in Spark job takes half of each worker in a run with
this fault, so that another fits beside it; a job of the user's own that has executors on the testbed's Spark is refused.

Evidence: by the trace the driver was stopped in the window, or the next start did the batch at whose step it was stopped; its processes
stood still while that start ran; it was awake beside that one, and what it sent then, or by which error it ended; it is gone; the job
committed a batch afterwards.
Checked against: Kafka 4.1 (a fenced producer is answered INVALID_PRODUCER_EPOCH, a static member FENCED_INSTANCE_ID), PostgreSQL 16, Delta
4.4 and Iceberg 1.11 on Spark 4.1.
"""

from __future__ import annotations

import re
import signal
import time
from dataclasses import asdict
from typing import Any

import psutil
from pydantic import Field

from streamproof.evidence.folder import RunFolder
from streamproof.faults.fault import EvidenceCheck, FaultError, Parameters, RunContext
from streamproof.faults.process.hold import stopped_at
from streamproof.faults.process.window_fault import WindowFault, WindowParameters, drawn, hold_at, next_start, release, was_in
from streamproof.jobs import aside, windows
from streamproof.jobs.failpoint import Site
from streamproof.jobs.profile import JobProfile, Role
from streamproof.jobs.windows import CHANGING, Strike
from streamproof.shown import shown
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.messages import STATEMENTS, read_trace
from streamproof.testbed.process import connections_to, same_process, signal_recorded, statuses

AWAKE_S, LONGEST_AWAKE_S, LOOK_S = 2.0, 10.0, 0.05
LONGEST_OF_STEP_S = 120.0
"""A driver that was stopped at a step has the rest of its batch before it, and may have to wait for new executors first."""
GONE_S = 10.0
GOES_ON_S = 120.0
ERROR = re.compile(r"the query failed: (.{1,300})")


class TwinDriverParameters(WindowParameters):
    takeover_s: float = Field(
        60.0, ge=1.0, le=300.0, description="How long at most the next start may take to commit a micro-batch, before the first wakes, in s"
    )
    step: str | None = Field(
        None, description="Of a built-in Spark job, instead of a window: the step of its protocol, one of the driver's or a watched one"
    )


class TwinDriver(WindowFault):
    name = "twin_driver"
    summary = "Stop the driver between two steps of its commit protocol, let another start take over, then wake it"
    parameters_model: type[Parameters] = TwinDriverParameters
    from_the_start = False
    starts_another = True

    def check(self, profile: JobProfile, parameters: dict[str, Any]) -> None:
        super().check(profile, parameters)
        if len(windows.alternatives(parameters.get("window") or "")) > 1:
            raise ValueError(f"{self.name}: expected one window, came {parameters['window']!r}")
        if (step := parameters.get("step")) is not None:
            fitting = [point.name for point in profile.failpoints if point.at in (Site.DRIVER, Site.WATCHED)]
            if parameters.get("window") is not None:
                raise ValueError(f"{self.name}: give a `window` or a `step`, not both")
            if step not in fitting:
                raise ValueError(
                    f"{self.name}: a job with {profile.name!r} has no step {shown(step)} at which its driver could be stopped; there are: "
                    f"{', '.join(fitting) or 'none'}"
                )
        if Role.EXECUTORS in profile.roles and profile.of_a_user:
            raise ValueError(
                f"{self.name}: a job with {profile.name!r} has executors, which keep their place in the cluster while its driver stands "
                "still: no other could start"
            )

    def batches(self, parameters: Any) -> int:
        return 4

    def inject(self, run: RunContext, parameters: Any, target: dict[str, Any]) -> None:
        if parameters.step is not None:
            target["stopped"] = run.recorded(Role.DRIVER)
            target["batch"] = stopped_at(run, parameters.step).batch
            aside.set_aside(run.folder, target["start"])
            return
        window = parameters.window or drawn(run)
        after, before = windows.parsed(window)
        if windows.edge(window) is None:
            raise FaultError(f"the window {window} lies between two files: there is no message that could be held")
        _, event = hold_at(run, target, {window: ("request", before) if windows.is_file(after) else ("answer", after)})
        target["held"] = event.held
        target["stopped"] = run.recorded(Role.DRIVER)
        signal_recorded(target["stopped"], signal.SIGSTOP)
        target["strikes"] = [asdict(Strike(window, time.time_ns()))]
        aside.set_aside(run.folder, target["start"])

    def evidence(self, run: RunContext, parameters: Any, target: dict[str, Any]) -> list[EvidenceCheck]:
        hit = None if parameters.step is not None else was_in(run, windows.strikes(target)[0], "stopped")
        successor = next_start(run, target["start"])
        begun = time.monotonic()
        took_over = run.eventually(lambda: self._took_over(run, target), parameters.takeover_s)
        still = statuses(target["stopped"])
        waited = f"it committed a batch after {time.monotonic() - begun:.1f} s" if took_over else "it committed nothing: it waited"
        stood = EvidenceCheck(
            f"the driver stood still while start {successor} ran beside it", still == {psutil.STATUS_STOPPED}, f"{_told(still)}; {waited}"
        )
        if hit is None:
            again = any(line["batch"] == target["batch"] and line["start"] == successor for line in run.progress.lines())
            what = f"start {successor} did the batch whose {parameters.step} it stood at"
            hit = EvidenceCheck(what, again or not took_over, f"batch {target['batch']}, {'done' if again else 'not done'} meanwhile")
        committed = run.progress.batches()
        awake = self._wake(run, target)
        gone = run.eventually(lambda: not statuses(target["stopped"]), GONE_S)
        over = EvidenceCheck("it is gone", gone, f"pids {', '.join(str(each['pid']) for each in target['stopped'])}")
        on = run.eventually(lambda: run.progress.batches() > committed, GOES_ON_S)
        return [hit, stood, awake, over, EvidenceCheck("the job committed a batch afterwards", on, f"{run.progress.batches()} batches")]

    def _took_over(self, run: RunContext, target: dict[str, Any]) -> bool:
        """Whether the next start has committed a batch. The rule holds its messages too: they go on."""
        for held in run.testbed.messages.state().held:
            if held.rule == target["rule"] and held.id != target.get("held"):
                release(run, held.id)
        return run.progress.last_start() > int(target["start"])

    def _wake(self, run: RunContext, target: dict[str, Any]) -> EvidenceCheck:
        """Let it go on until it has sent something that changes something, and a little longer; then end it."""
        woken_ns, ports, ran = time.time_ns(), set[int](), set[str]()
        if "held" in target:
            release(run, target["held"])
            run.testbed.messages.disarm(target["rule"])
        signal_recorded(target["stopped"], signal.SIGCONT)
        until = time.monotonic() + (LONGEST_AWAKE_S if "held" in target else LONGEST_OF_STEP_S)
        while (now := time.monotonic()) < until and (now_are := statuses(target["stopped"])):
            ran |= now_are - {psutil.STATUS_STOPPED}
            ports |= _ports(run, target["stopped"])
            if "held" in target and _sent(run, woken_ns, ports):
                until = min(until, now + AWAKE_S)
            time.sleep(LOOK_S)
        ended = not statuses(target["stopped"])
        signal_recorded(target["stopped"], signal.SIGKILL)
        aside.take_back(run.folder)
        sent = _sent(run, woken_ns, ports)
        told = f"it sent {', '.join(sent[:6])}" if sent else "it sent nothing that changes anything"
        detail = f"{told}, and ended by itself{_why(run, target['start'])}" if ended else told
        return EvidenceCheck(f"it was woken, and was awake beside start {run.start()}", bool(ran) or ended, detail)

    def heal(self, testbed: Testbed, folder: RunFolder, target: dict[str, Any]) -> list[EvidenceCheck]:
        signal_recorded(target.get("stopped", ()), signal.SIGKILL)
        aside.take_back(folder)
        return super().heal(testbed, folder, target)


def _why(run: RunContext, start: int) -> str:
    """What the log of a start of ours says of its end."""
    log = run.folder.logs / f"driver-{start}.log"
    found = ERROR.findall(log.read_text(errors="replace")) if log.exists() else []
    return f": {found[-1]}" if found else ""


def _told(found: set[str]) -> str:
    return ", ".join(sorted(found)) or "its processes were gone"


def _ports(run: RunContext, records: list[dict[str, Any]]) -> set[int]:
    """The local ports of their connections to the testbed's links."""
    links = {int(address.rpartition(":")[2]) for address in run.testbed.links.values()}
    there = [process for record in records if (process := same_process(record)) is not None]
    return {port for process in there for link in links for port in connections_to(process, link)}


def _sent(run: RunContext, since_ns: int, ports: set[int]) -> list[str]:
    """What came from those ports since then that changes something at a server."""
    run.testbed.messages.state()  # writes what is buffered
    changing = CHANGING | set(STATEMENTS) - {"SELECT", "BEGIN", "other"}
    return [
        message.message
        for message in read_trace(run.folder.messages)
        if message.direction == "request" and message.at_ns >= since_ns and message.client_port in ports and message.message in changing
    ]


__all__ = ["TwinDriver", "TwinDriverParameters"]
