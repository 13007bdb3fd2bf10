"""The verdict of an experiment that is run by the command line, in a process of its own, as a user runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

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


def found(verdict: dict[str, Any]) -> set[str]:
    """The anomalies that the output shows, those that are allowed too."""
    return {anomaly for anomaly, count in verdict["anomalies"].items() if count}
