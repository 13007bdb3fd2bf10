"""A reader beside a run: it watches batches become visible, and how long it could see part of one.

A batch is *torn* while some of its records are visible and others are not. An atomic strategy leaves none torn; while it carries a
decision out a reader may catch it in between, and for longer when it is crashed just there.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from types import TracebackType
from typing import Self

from streamproof.evidence.folder import RunFolder
from streamproof.jobs.job import Job
from streamproof.sinks import outputs
from streamproof.testbed.embedded import Testbed

LOOK_S = 0.02
END_S = 10.0
log = logging.getLogger("streamproof.run.observer")


class Observer:
    """Watches one run, if it is ``wanted`` at all. A context manager: the reader ends with it."""

    def __init__(self, enabled: bool = True) -> None:
        self._wanted = enabled
        self._seen: dict[int, list[tuple[float, int]]] = {}
        self._done = threading.Event()
        self._thread: threading.Thread | None = None
        self._failure: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def watch(self, folder: RunFolder, testbed: Testbed) -> None:
        """Begin to watch a run that was prepared."""
        job = Job.read(folder)
        if self._wanted:
            self._thread = threading.Thread(target=self._follow, args=(job, testbed), name="observer", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        self._done.set()
        if self._thread is not None:
            self._thread.join(END_S)

    def longest_torn_s(self) -> float | None:
        """The longest time between seeing a part of a batch and seeing all of it, in seconds; None when nothing was watched."""
        if self._thread is None or self._failure is not None or not self._seen:
            return None
        return max(sights[-1][0] - sights[0][0] for sights in self._seen.values())

    def _follow(self, job: Job, testbed: Testbed) -> None:
        try:
            with contextlib.closing(outputs.of(job).reader(job, testbed)) as reader:
                while not self._done.is_set():
                    now = time.monotonic()
                    for batch, count in reader.visible().items():
                        sights = self._seen.setdefault(batch, [])
                        if not sights or sights[-1][1] != count:
                            sights.append((now, count))
                    self._done.wait(LOOK_S)
        except Exception as error:  # noqa: BLE001 - whatever it was, it is the watcher's trouble and not the run's
            self._failure = str(error)
            log.warning("the reader beside the run ended: %s", error)
