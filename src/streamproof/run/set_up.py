"""The set-up of an installed package: what the testbed runs, the loops that are compiled, and one small job on all of it.

``streamproof setup`` in any installation, and the last step of ``make setup`` in a checkout. It may be repeated, and goes on where it
stopped; what is in place is left alone.
"""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Callable

from streamproof import extras, settings
from streamproof.run import training
from streamproof.testbed import install


def set_up(say: Callable[[str], None]) -> None:
    """Raises MissingExtra, SetupError when a piece cannot be put in place, TestbedError when the pieces do not work together."""
    extras.require(*extras.RUN)
    begun, printing = time.monotonic(), threading.Lock()

    def report(line: str) -> None:
        with printing:
            say(f"{time.monotonic() - begun:4.0f} s  {line}")

    try:
        install.install(report)
    except OSError as error:
        raise install.SetupError(f"{error}. The set-up writes below {settings.cache()}: free or unlock it, then run it again.") from error
    report("compiling the loops that read every delivered record")
    importlib.import_module("streamproof.sinks.kafka.drain")
    report("a small job on all of it: does it work? It also writes the archives from which Spark starts in a third of the time")
    training.try_out(report)
