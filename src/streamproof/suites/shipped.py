"""The suites by name: those that come with the product, and those of a project that replace them.

A project's ``expectations/<name>.json`` is used instead of the product's own file of that name.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from streamproof import settings
from streamproof.evidence.folder import EvidenceError

PACKAGE = Path(__file__).parent / "expectations"


def path(name: str) -> Path:
    """The file of the suite with this name."""
    of_project = settings.project() / "expectations" / f"{name}.json"
    return of_project if of_project.is_file() else PACKAGE / f"{name}.json"


def read(name: str) -> dict[str, Any]:
    """A suite, as Great Expectations writes it down. Raises EvidenceError when its file is none."""
    file = path(name)
    try:
        suite = json.loads(file.read_text())
        return {"name": suite["name"], "notes": list(suite.get("notes") or []), "expectations": list(suite["expectations"])}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise EvidenceError(f"{file} is no suite of Great Expectations: {type(error).__name__}: {error}") from error


OF_RESULTS = frozenset(expectation["type"] for expectation in read("exactly-once-results")["expectations"])
"""The expectations on what a stateful job computes."""
