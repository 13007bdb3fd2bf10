"""An expectation of this project's own. A suite names it as ``expect_delay_to_be_plausible``, after its class."""

from __future__ import annotations

from great_expectations.expectations.core import ExpectColumnValuesToBeBetween

EARLIEST_MIN, LATEST_MIN = -120, 24 * 60


class ExpectDelayToBePlausible(ExpectColumnValuesToBeBetween):
    """A flight leaves and lands no more than two hours early, and no more than a day late. Delays are in minutes."""

    column: str = "dep_delay"
    min_value: float | None = EARLIEST_MIN
    max_value: float | None = LATEST_MIN
    description: str | None = "No flight is more than two hours early, or more than a day late."
