"""A command that another program starts: it ends with that program.

The program holds the other end of this command's standard input, and writes nothing. When that end is closed, on purpose or because the
program was killed, the command gets a SIGTERM, once: it aborts its run and restores the testbed. A signal from the program itself could
come twice, and the second one would interrupt the restore.
"""

from __future__ import annotations

import os
import signal
import threading
from typing import Annotated

import typer

STDIN = 0
CHUNK_BYTES = 4096

AttendedOption = Annotated[
    bool, typer.Option("--attended", help="Stop, as on SIGTERM, when standard input ends: for a program that starts this command.")
]


def attend() -> None:
    """From now on, end with standard input."""
    threading.Thread(target=_look, name="attended", daemon=True).start()


def _look() -> None:
    while os.read(STDIN, CHUNK_BYTES):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
