"""The set-up of an installed package: what the testbed runs, the loops that are compiled, and one small job on all of it.

``streamproof setup`` in any installation, and the last step of ``make setup`` in a checkout. It may be repeated, and goes on where it
stopped; what is in place is left alone.
"""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from streamproof import extras, registry, settings
from streamproof.errors import BadInput
from streamproof.report import vega
from streamproof.run import training
from streamproof.shown import shown
from streamproof.testbed import install


def set_up(say: Callable[[str], None]) -> None:
    """Raises MissingExtra, SetupError when a piece cannot be put in place, TestbedError when the pieces do not work together."""
    extras.require(*extras.RUN)
    report = _reporter(say)
    with _below_the_cache():
        install.install(report)
    report("compiling the loops that read every delivered record")
    importlib.import_module("streamproof.sinks.kafka.drain")
    vega.library(settings.cache())  # of the reports' pictures; a report may find the cache read-only
    report("a small job on all of it: does it work? It also writes the archives from which Spark starts in a third of the time")
    training.try_out(report)


def set_up_engine(name: str, say: Callable[[str], None]) -> None:
    """What an engine needs beside that. Raises BadInput naming the engines that need something, SetupError as :func:`set_up`."""
    locks: dict[str, Path] = {each: engine.jars for each, engine in registry.registered("engines").items() if engine.jars is not None}
    if name not in locks:
        raise BadInput(f"setup: expected an engine that needs something of its own ({', '.join(locks)}), came {shown(name)}")
    with _below_the_cache():
        install.install_engine(locks[name], _reporter(say))


def _reporter(say: Callable[[str], None]) -> install.Report:
    begun, printing = time.monotonic(), threading.Lock()

    def report(line: str) -> None:
        with printing:
            say(f"{time.monotonic() - begun:4.0f} s  {line}")

    return report


@contextmanager
def _below_the_cache() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise install.SetupError(f"{error}. The set-up writes below {settings.cache()}: free or unlock it, then run it again.") from error
