"""What a JobManager says over its REST interface, to a client that has the key of its start.

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

from streamproof.engines.flink import secured
from streamproof.engines.flink.cluster import CONFIGURATION

ANSWER_S = 3.0


def newest(folder: Path) -> Path | None:
    """The configuration of the newest start, below the folder that holds each of them; None before the first."""
    return max((path.parent for path in folder.glob(f"flink-*/{CONFIGURATION}")), key=lambda path: path.stat().st_mtime, default=None)


def task_managers(configured: Path) -> frozenset[str]:
    """The ids of the TaskManagers that are registered; empty while it does not answer."""
    return frozenset(str(each["id"]) for each in _asked(configured, "taskmanagers").get("taskmanagers", ()))


def job_starts(configured: Path) -> frozenset[str]:
    """The job, and when this JobManager began it, in ms; empty while it does not answer."""
    jobs = _asked(configured, "jobs/overview").get("jobs", ())
    return frozenset(f"job {each['jid']} begun at {each['start-time']}" for each in jobs)


def _asked(configured: Path, what: str) -> dict[str, Any]:
    try:
        told = yaml.safe_load((configured / CONFIGURATION).read_text())
        url = f"https://{told['rest.address']}:{told['rest.port']}/{what}"
        with urllib.request.urlopen(url, timeout=ANSWER_S, context=secured.context(configured)) as answer:
            return dict(json.load(answer))
    except (urllib.error.URLError, OSError, ValueError, HTTPException):
        return {}
