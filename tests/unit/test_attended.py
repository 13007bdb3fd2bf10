"""A command that another program starts ends with it: by a SIGTERM, once, when its standard input ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.support.checkout import ROOT

END_S = 20
COMMAND = """
import signal, sys, threading
from streamproof.cli.attended import attend
stopped = []
signal.signal(signal.SIGTERM, lambda number, frame: stopped.append(number))
attend()
print("ready", flush=True)
while not stopped:
    signal.sigtimedwait([], 0.05)
signal.sigtimedwait([], 0.5)
sys.exit(10 + len(stopped))
"""


@pytest.fixture
def command() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", COMMAND], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process
        process.kill()


def test_it_goes_on_as_long_as_the_other_end_is_open(command: subprocess.Popen[bytes]) -> None:
    assert command.stdin is not None
    command.stdin.write(b"a line\n")
    command.stdin.flush()
    with pytest.raises(subprocess.TimeoutExpired):
        command.wait(0.7)


def test_it_gets_one_sigterm_when_the_other_end_is_closed(command: subprocess.Popen[bytes]) -> None:
    assert command.stdin is not None
    command.stdin.close()
    assert command.wait(END_S) == 11


def test_it_ends_when_the_program_that_started_it_is_killed() -> None:
    starts = (
        f"import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', {COMMAND!r}], stdin=-1); print(p.pid, flush=True); p.wait()"
    )
    with subprocess.Popen([sys.executable, "-c", starts], cwd=ROOT, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        lines = {program.stdout.readline() for _ in range(2)}
        assert b"ready\n" in lines
        program.send_signal(signal.SIGKILL)
        assert program.stdout.read() == b"", "standard output is closed only once the command has ended as well"
