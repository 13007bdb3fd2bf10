"""What the tests with real runs share: these processes make many, so that Great Expectations is imported once."""

from __future__ import annotations

import atexit
import os

import pytest

from streamproof.suites.evaluate import warm_up


@pytest.fixture(scope="session", autouse=True)
def _warm() -> None:
    """When such a process ends DuckDB tells, at the very end, how many of its own types Great Expectations still holds: forty lines that
    say nothing of a test."""
    warm_up()
    atexit.register(lambda: os.dup2(os.open(os.devnull, os.O_WRONLY), 2))
