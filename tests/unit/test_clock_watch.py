"""A clock that is set is noticed, and what it showed twice lies within what is journaled."""

from __future__ import annotations

from datetime import datetime

import pytest

from streamproof.run.clock_watch import Reading, read, step_between

BEGUN = 1_767_225_600.0


def _seconds(stamp: str) -> float:
    return datetime.fromisoformat(stamp).timestamp() - BEGUN


@pytest.mark.parametrize("step", [-0.4, -0.021, 0.021, 4000.0])
def test_a_step_is_told_with_its_size(step: float) -> None:
    found = step_between(Reading(BEGUN, 5.0), Reading(BEGUN + 0.1 + step, 5.1))
    assert found is not None
    assert found.step_ms == round(step * 1000)


@pytest.mark.parametrize("step", [-0.019, 0.0, 0.019])
def test_a_clock_that_is_corrected_slowly_was_not_set(step: float) -> None:
    assert step_between(Reading(BEGUN, 5.0), Reading(BEGUN + 0.1 + step, 5.1)) is None


@pytest.mark.parametrize("moment", [0.0, 0.03, 0.1])
def test_what_was_shown_twice_lies_between_since_and_until_whenever_the_clock_was_set(moment: float) -> None:
    found = step_between(Reading(BEGUN, 5.0), Reading(BEGUN + 0.1 - 0.4, 5.1))
    assert found is not None
    assert _seconds(found.since) <= moment - 0.4 + 0.001
    assert _seconds(found.until) >= moment - 0.001


def test_this_machines_clocks_are_read_alike() -> None:
    first, second = read(), read()
    assert step_between(first, second) is None
