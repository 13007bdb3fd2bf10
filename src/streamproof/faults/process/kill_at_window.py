"""``kill_at_window``: SIGKILL the driver between two steps of its commit protocol, as seen from outside.

The model: a crash at the worst moment, in a job of which nobody knows the code. The message that ends the window is held before its server
gets it, the driver is killed, and the message is thrown away. Where the window ends with a file, the answer to the message that begins it
is held. Between two files nothing can be held: the driver is stopped as soon as the first is there and does not grow any more, and looked
at. One that is further goes on, and is stopped in the next batch; one that is there is killed.

With ``linger_s`` the message is held for a while first. What other threads and processes of the job do meanwhile is done then: a job that
commits an offset while the write that it stands for is still on its way is caught so.

With ``down_s`` the job stays down for a while before it is started again.

With ``then`` the start that takes over is killed as well, before it has gone on: recovery must survive a crash of its own.

Evidence: by the trace and the files, the step before the window was done before the driver was killed, and the one behind it was not; the
driver's processes are gone; the job was started again and committed a batch.
Checked against: Spark 4.1 (``offsets/N`` and ``commits/N`` are renamed into place), Kafka 4.1, PostgreSQL 16.
"""

from __future__ import annotations

import signal
import time
from dataclasses import asdict
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from streamproof.evidence.folder import RunFolder
from streamproof.faults.fault import EvidenceCheck, Parameters, RunContext
from streamproof.faults.process.kill_driver import gone_and_back
from streamproof.faults.process.window_fault import (
    WindowFault,
    WindowParameters,
    drawn,
    hold_at,
    meant,
    next_start,
    stop_between_files,
    throw_away,
    was_in,
)
from streamproof.jobs import down, windows
from streamproof.jobs.down import DownS
from streamproof.jobs.profile import Role
from streamproof.jobs.windows import Strike
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.process import signal_recorded


class KillAtWindowParameters(WindowParameters):
    linger_s: float = Field(
        0.0,
        ge=0.0,
        le=10.0,
        description="How long the message is held before the kill, in s: what others of the job do meanwhile is done then",
    )
    then: Annotated[str | None, AfterValidator(windows.named)] = Field(
        None, description="A second window, in which the start that takes over is killed too: a crash in the middle of the recovery"
    )
    down_s: float = DownS


class KillAtWindow(WindowFault):
    name = "kill_at_window"
    summary = "SIGKILL the driver between two steps of its commit protocol, as seen from outside"
    parameters_model: type[Parameters] = KillAtWindowParameters

    def batches(self, parameters: Any) -> int:
        return 4 if parameters.then else super().batches(parameters)

    def inject(self, run: RunContext, parameters: Any, target: dict[str, Any]) -> None:
        target["killed"], target["strikes"] = [], []
        target["down_s"] = parameters.down_s
        _strike(run, parameters.window or drawn(run), parameters.linger_s, target)
        if parameters.then is not None:
            target["start"] = next_start(run, target["start"])
            _strike(run, parameters.then, 0.0, target)

    def evidence(self, run: RunContext, parameters: Any, target: dict[str, Any]) -> list[EvidenceCheck]:
        return [*(was_in(run, strike, "killed") for strike in windows.strikes(target)), *gone_and_back(run, target)]

    def heal(self, testbed: Testbed, folder: RunFolder, target: dict[str, Any]) -> list[EvidenceCheck]:
        down.lift(folder)
        return super().heal(testbed, folder, target)


def _strike(run: RunContext, window: str, linger_s: float, target: dict[str, Any]) -> None:
    held, names = None, meant(run, KillAtWindow.name, window)
    if edges := windows.edges(names):
        window, held = hold_at(run, target, edges)
    else:
        stop_between_files(run, window)
    at_ns = time.time_ns() if held is not None and linger_s else None
    if at_ns is not None:
        run.let_pass(linger_s)
    victims = run.recorded(Role.DRIVER)
    target["killed"] += victims
    down.keep_down(run.folder, target["down_s"])
    signal_recorded(victims, signal.SIGKILL)
    target["strikes"].append(asdict(Strike(window, at_ns or time.time_ns())))
    throw_away(run, held)
    run.testbed.messages.disarm(target["rule"])
