"""The verdict of an experiment that is run by the command line, in a process of its own, as a user runs it."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, TypeVar

import yaml

from streamproof import settings

Item = TypeVar("Item")
Result = TypeVar("Result")
ROOT = Path(__file__).resolve().parent.parent


def of(experiment: Path, timeout_s: float) -> tuple[dict[str, Any] | None, str]:
    """The verdict as ``run --json`` prints it, and its reason; None and what was printed instead where there is none. Raises
    subprocess.TimeoutExpired."""
    command = [sys.executable, "-m", "streamproof.cli.main", "run", str(experiment), "--json"]
    done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, check=False)
    if not done.stdout:
        return None, done.stderr[-2000:]
    verdict: dict[str, Any] = json.loads(done.stdout)
    return verdict, str(verdict["reason"])


def of_document(experiment: dict[str, Any], timeout_s: float) -> tuple[dict[str, Any] | None, str]:
    """The same of an experiment that is no file yet."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "experiment.yaml"
        file.write_text(yaml.safe_dump(experiment))
        return of(file, timeout_s)


def streamproof(home: Path, *arguments: str, timeout_s: float) -> subprocess.CompletedProcess[str]:
    """A command of the command line with a home of its own, and with what is set up here. Raises subprocess.TimeoutExpired."""
    command = [sys.executable, "-m", "streamproof.cli.main", *arguments]
    env = {**os.environ, "STREAMPROOF_HOME": str(home), "STREAMPROOF_CACHE": str(settings.cache())}
    return subprocess.run(
        command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, check=False
    )


def found(verdict: dict[str, Any]) -> set[str]:
    """The anomalies that the output shows, those that are allowed too."""
    return {anomaly for anomaly, count in verdict["anomalies"].items() if count}


def side_by_side(
    homes: Path, count: int, items: Iterable[Item], one: Callable[[Item, Path], Result], timeout_s: float
) -> Iterator[Future[Result]]:
    """What ``one`` came to for each item, as they end: ``count`` at a time, each in a home. Their testbeds are taken down at
    the end."""
    free: queue.Queue[Path] = queue.Queue()
    for number in range(count):
        free.put(homes / str(number + 1))

    def at_home(item: Item) -> Result:
        home = free.get()
        try:
            return one(item, home)
        finally:
            free.put(home)

    try:
        with ThreadPoolExecutor(count) as pool:
            yield from as_completed([pool.submit(at_home, item) for item in items])
    finally:
        while not free.empty():
            streamproof(free.get(), "testbed", "down", timeout_s=timeout_s)


def commit() -> str:
    """The commit of this checkout, with ``-dirty`` where files of it were changed."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--match", "no tag"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
