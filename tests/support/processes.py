"""Processes that a run leaves, or does not."""

from __future__ import annotations

import psutil

from streamproof.testbed.process import marked


def of_runs() -> list[psutil.Process]:
    """Those of this testbed that some run has started. One that ends while it is looked at is gone."""
    found = []
    for process in marked():
        try:
            if "STREAMPROOF_RUN" in process.environ():
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found
