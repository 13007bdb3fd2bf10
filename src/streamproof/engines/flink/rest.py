"""What a JobManager says over its REST interface.

Checked against: Flink 2.3 (``/taskmanagers`` lists those that are registered, each with an id of its own; ``/jobs/overview`` says when this
JobManager began the job).
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from http.client import HTTPException
from pathlib import Path
from typing import Any

import yaml

ANSWER_S = 3.0


def address(folder: Path) -> str | None:
    """Where the JobManager of the newest start answers, by the configuration that it got; None before the first."""
    try:
        configuration = yaml.safe_load((folder / "config.yaml").read_text())
    except FileNotFoundError:
        return None
    return f"http://{configuration['rest.address']}:{configuration['rest.port']}"


def task_managers(address: str) -> frozenset[str]:
    """The ids of the TaskManagers that are registered; empty while it does not answer."""
    return frozenset(str(each["id"]) for each in _asked(f"{address}/taskmanagers").get("taskmanagers", ()))


def job_starts(address: str) -> frozenset[str]:
    """The job, and when this JobManager began it, in ms; empty while it does not answer."""
    jobs = _asked(f"{address}/jobs/overview").get("jobs", ())
    return frozenset(f"job {each['jid']} begun at {each['start-time']}" for each in jobs)


def _asked(url: str) -> dict[str, Any]:
    try:
        with urllib.request.urlopen(url, timeout=ANSWER_S) as answer:
            return dict(json.load(answer))
    except (urllib.error.URLError, OSError, ValueError, HTTPException):
        return {}
