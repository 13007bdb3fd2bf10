"""What the tests with real runs share: these processes make many, so that Great Expectations is imported once."""

from __future__ import annotations

import pytest

from streamproof.suites.evaluate import warm_up


@pytest.fixture(scope="session", autouse=True)
def _warm() -> None:
    warm_up()
