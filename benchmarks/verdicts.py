"""The verdict of an experiment that is run by the command line, in a process of its own, as a user runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

from streamproof import settings

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


def commit() -> str:
    """The commit of this checkout, with ``-dirty`` where files of it were changed."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--match", "no tag"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
