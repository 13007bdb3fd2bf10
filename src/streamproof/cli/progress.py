"""What a run does, as it goes on."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterator
from typing import Any

from streamproof import settings
from streamproof.cli.terminal import out
from streamproof.evidence.folder import RunFolder
from streamproof.evidence.journal import PhaseBegan, StageStarted
from streamproof.experiment.model import Experiment


class _Elapsed(logging.Formatter):
    """Lines that begin with the seconds since the command began."""

    def __init__(self) -> None:
        super().__init__()
        self._begun = time.time()

    def format(self, record: logging.LogRecord) -> str:
        text = f"{record.created - self._begun:6.1f} s  {record.getMessage()}"
        return text if record.exc_info is None else f"{text}\n{self.formatException(record.exc_info)}"


@contextlib.contextmanager
def progress(experiment: Experiment) -> Iterator[None]:
    """What the run does: plain lines, and on a terminal a live bar below them."""
    from rich.logging import RichHandler
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    logger = logging.getLogger("streamproof")
    logger.setLevel(logging.INFO)
    if not out.is_terminal:
        handler = logging.StreamHandler(out.file)
        handler.setFormatter(_Elapsed())
        logger.addHandler(handler)
        try:
            yield
        finally:
            logger.removeHandler(handler)
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.completed:,.0f} of {task.total:,.0f} committed"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=out, transient=True) as bars:
        live = RichHandler(console=bars.console, show_path=False, show_level=False, markup=False, rich_tracebacks=False)
        logger.addHandler(live)
        bar = bars.add_task("prepare", total=experiment.workload.records)
        done = threading.Event()
        follower = threading.Thread(target=_follow, args=(bars, bar, done, time.time()), daemon=True)
        follower.start()
        try:
            yield
        finally:
            done.set()
            follower.join(timeout=2)
            logger.removeHandler(live)


def _follow(bars: Any, bar: Any, done: threading.Event, since: float) -> None:
    """Feed the bar from the run's folder, the newest one."""
    from streamproof.evidence.progress import Progress

    folder, progress = None, None
    while not done.wait(0.2):
        if folder is None:
            paths = [path for path in settings.runs().glob("*/journal.jsonl") if path.stat().st_mtime >= since]
            if not paths:
                continue
            folder = RunFolder(max(paths, key=lambda path: path.stat().st_mtime).parent)
            progress = Progress(folder)
        now = folder.journal.last(PhaseBegan, StageStarted)
        description = now.phase if isinstance(now, PhaseBegan) else now.stage if isinstance(now, StageStarted) else ""
        assert progress is not None
        bars.update(bar, completed=progress.committed(), description=description)
