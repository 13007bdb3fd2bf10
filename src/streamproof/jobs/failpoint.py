"""Failpoints: the named steps of a commit protocol at which a job can be made to crash, as a job's profile names them.

How a step is reached, held and crashed at is the engine's business; see ``streamproof.engines.spark.failpoints``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from streamproof.verdict.anomaly import Anomaly


class Action(StrEnum):
    """What happens at a step: KILL_DRIVER ends the driver's JVM, its Python and this process; KILL_WORKER ends the task's Python worker;
    KILL_EXECUTOR ends the executor's JVM, in which the task runs; RAISE throws an error."""

    KILL_DRIVER = "kill_driver"
    KILL_WORKER = "kill_worker"
    KILL_EXECUTOR = "kill_executor"
    RAISE = "raise"


class Site(StrEnum):
    """Where a step is passed: by the DRIVER, by a TASK in its Python worker, by a task in the EXECUTOR's own JVM, by the driver in RECOVERY
    before its query writes, or inside Spark (WATCHED)."""

    DRIVER = "driver"
    TASK = "task"
    EXECUTOR = "executor"
    RECOVERY = "recovery"
    WATCHED = "watched"


ACTIONS: dict[str, tuple[Action, ...]] = {
    Site.DRIVER: (Action.KILL_DRIVER, Action.RAISE),
    Site.TASK: (Action.KILL_DRIVER, Action.KILL_WORKER, Action.RAISE),
    Site.EXECUTOR: (Action.KILL_DRIVER, Action.KILL_EXECUTOR, Action.RAISE),
    Site.RECOVERY: (Action.KILL_DRIVER,),
    Site.WATCHED: (Action.KILL_DRIVER,),
}


@dataclass(frozen=True)
class Failpoint:
    """A step of a protocol. ``at`` is the :class:`Site` that passes it, ``window`` what a crash there does in words.

    The prediction of what a crash there shows: every anomaly of ``provokes``, perhaps some of ``allows``, and no other.
    """

    name: str
    at: str
    window: str
    provokes: frozenset[Anomaly] = frozenset()
    allows: frozenset[Anomaly] = frozenset()

    @property
    def actions(self) -> tuple[Action, ...]:
        return ACTIONS[self.at]


class Watch(Protocol):
    """A crash window of a step that no code of the job passes, seen from outside."""

    def entered(self) -> int | None:
        """The batch whose window is open now, None while none is. Asked often."""

    def still(self) -> bool:
        """Whether the window that :meth:`entered` saw is still open. Asked while the job is stopped."""
