"""A job of several processes: starts its members, starts one again that died, and ends them all with it.

It is to them what a cluster manager is: ``python -m streamproof.engines.members FILE`` is the process that a run's supervisor starts, and
FILE lists the members. Each leads a session of its own, and has its role and its name in its environment, by which an engine finds it. A
member that dies is started again after ``again_s``; one without that ends the whole start, with its exit code. So does one that ends by
itself ``QUICK_ENDS`` times in a row, each time soon after it began: it would never get to work.

On SIGTERM the members get it in the opposite order; what is left after ``END_S`` is killed. When this process itself is killed, the run's
supervisor ends what it leaves.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType

ROLE_MARK = "STREAMPROOF_MEMBER_ROLE"
"""The variable that each process of a member has in its environment: the member's role."""
NAME_MARK = "STREAMPROOF_MEMBER"
"""The same: the member's name."""
POLL_S = 0.1
END_S = 10.0
QUICK_ENDS, QUICK_S = 4, 30.0


@dataclass(frozen=True)
class Member:
    """A process of a job: its name, the role that it plays, its command, what its environment has beside the job's. It is started again
    ``again_s`` after it died, in s; with None the job ends with it. With ``ends`` it is meant to end by itself, with exit code 0."""

    name: str
    role: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    again_s: float | None = 1.0
    ends: bool = False


def command(file: Path, members: Sequence[Member]) -> list[str]:
    """The command line that starts these members, which are written to ``file``."""
    file.write_text(json.dumps([asdict(member) for member in members], indent=1))
    return [sys.executable, "-m", __name__, str(file)]


class Members:
    """The members of a job while they run."""

    def __init__(self, members: Sequence[Member]) -> None:
        self._members = {member.name: member for member in members}
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._due: dict[str, float] = {}
        self._began: dict[str, float] = {}
        self._quick_ends: Counter[str] = Counter()
        self._stopping = False
        signal.signal(signal.SIGTERM, self._stop)

    def run(self) -> int:
        """Keeps them running until one ends the job, or SIGTERM comes. The exit code of the job."""
        try:
            for name in self._members:
                self._start(name)
            while not self._stopping:
                if (code := self._look()) is not None:
                    return code
                time.sleep(POLL_S)
            return 0
        finally:
            self._end()

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._stopping = True

    def _start(self, name: str) -> None:
        member = self._members[name]
        environment = {**os.environ, **member.environment, ROLE_MARK: member.role, NAME_MARK: name}
        self._running[name] = subprocess.Popen(member.command, env=environment, stdin=subprocess.DEVNULL, start_new_session=True)
        self._due.pop(name, None)
        self._began[name] = time.monotonic()

    def _look(self) -> int | None:
        """Starts again what is due. The code to end with, once a member has ended for good."""
        for name, process in list(self._running.items()):
            if (code := process.poll()) is None:
                continue
            del self._running[name]
            member = self._members[name]
            if member.ends and code == 0:
                continue
            print(f"member {name} ended with {code}", flush=True)
            quick = code > 0 and time.monotonic() - self._began[name] < QUICK_S
            self._quick_ends[name] = self._quick_ends[name] + 1 if quick else 0
            if member.again_s is None or self._quick_ends[name] >= QUICK_ENDS:
                return code if code > 0 else 1
            self._due[name] = time.monotonic() + member.again_s
        for name in [name for name, due in self._due.items() if time.monotonic() >= due]:
            self._start(name)
        return None

    def _end(self) -> None:
        left = list(reversed(self._running.values()))
        for process in left:
            _signal(process, signal.SIGTERM)
        until = time.monotonic() + END_S
        for process in left:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(until - time.monotonic(), 0.0))
        for process in left:
            _signal(process, signal.SIGKILL)


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """To all that the member started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def main() -> int:
    members = [Member(**each) for each in json.loads(Path(sys.argv[1]).read_text())]
    return Members(members).run()


if __name__ == "__main__":
    sys.exit(main())
