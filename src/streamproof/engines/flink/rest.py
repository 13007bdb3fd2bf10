"""What a JobManager says over its REST interface, to a client that has the key of its start.

Checked against: Flink 2.3 (``/taskmanagers`` lists those that are registered, each with an id of its own; ``/jobs/overview`` says when this
JobManager began the job).
"""

from __future__ import annotations

import contextlib
import json
import urllib.error
import urllib.request
from http.client import HTTPException
from pathlib import Path
from typing import Any

import yaml

from streamproof.engines.flink import secured
from streamproof.engines.flink.cluster import CONFIGURATION, JOB_MANAGERS

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


def stop_with_savepoint(configured: Path, job: str, folder: Path) -> str | None:
    """The request's id; None when it was not taken."""
    asked = _asked(configured, f"jobs/{job}/stop", {"targetDirectory": folder.as_uri(), "drain": False})
    return asked.get("request-id")


def savepoint(configured: Path, job: str, request: str) -> str | None:
    """Where the savepoint of a request is; None while it is not complete."""
    operation = _asked(configured, f"jobs/{job}/savepoints/{request}").get("operation") or {}
    return operation.get("location")


def restored(configured: Path, job: str) -> str | None:
    """Where the job was restored from: empty from nothing, None while it does not answer."""
    latest = _asked(configured, f"jobs/{job}/checkpoints").get("latest")
    return None if latest is None else (latest.get("restored") or {}).get("external_path", "")


def rpc_ports(configured: Path) -> dict[str, int]:
    """On which TaskManagers speak with each JobManager of a start."""
    files = {name: configured / below / CONFIGURATION for name, below in JOB_MANAGERS.items()}
    return {name: int(yaml.safe_load(file.read_text())["jobmanager.rpc.port"]) for name, file in files.items() if file.is_file()}


def _asked(configured: Path, what: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """What a JobManager answers; one that stands by asks the one that leads. Empty when none does."""
    said = None if body is None else json.dumps(body).encode()
    for below in JOB_MANAGERS.values():
        with contextlib.suppress(urllib.error.URLError, OSError, ValueError, HTTPException):
            told = yaml.safe_load((configured / below / CONFIGURATION).read_text())
            url = f"https://{told['rest.address']}:{told['rest.port']}/{what}"
            request = urllib.request.Request(url, said, {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=ANSWER_S, context=secured.context(configured)) as answer:
                return dict(json.load(answer))
    return {}
