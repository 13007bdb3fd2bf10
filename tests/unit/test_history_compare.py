"""Two runs beside each other: what differs, and whether that says anything."""

from __future__ import annotations

from typing import Any

import pytest

from streamproof.history.compare import compare, conditions, same_settings
from tests.support.remembered import RUN, night


def _named(**fields: Any) -> dict[str, tuple[Any, Any]]:
    return {each.name: (each.first, each.second) for each in compare(night(0), night(1, **fields)).differences}


def test_runs_that_share_everything_differ_in_nothing() -> None:
    found = compare(night(0), night(1))
    assert (found.comparable, found.differences) == (True, ())


@pytest.mark.parametrize(
    ("fields", "differences"),
    [
        ({"recovery_s": 4.0}, {"recovery_s": (2.0, 4.0)}),
        ({"recovery_s": None}, {"recovery_s": (2.0, None)}),
        ({"anomalies": {**RUN.anomalies, "LOST": 3}}, {"LOST": (0, 3)}),
        ({"anomalies": {}}, {"LOST": (0, None), "DUPLICATED": (0, None), "PHANTOM": (0, None), "CORRUPTED": (0, None)}),
        ({"records_per_s": {**RUN.records_per_s, "impact": 1000.0}}, {"impact": (2000.0, 1000.0)}),
        ({"versions": {"pyspark": "4.1.4", "kafka": "4.1.0", "postgres": "18"}}, {"pyspark": ("4.1.3", "4.1.4"), "postgres": (None, "18")}),
        ({"stage_seconds": {"prepare": 0.3}}, {"drain": (0.5, None)}),
        ({"settings": {**RUN.settings, "workload": {"records": 1, "partitions": 4}}}, {"workload.records": (20_000, 1)}),
        ({"settings": {**RUN.settings, "new_in_this_version": 1}}, {}),
    ],
)
def test_what_differs_is_named_with_both_values(fields: dict[str, Any], differences: dict[str, Any]) -> None:
    assert _named(**fields) == differences


@pytest.mark.parametrize(
    ("fields", "obstacles"),
    [
        ({"strategy": "checkpoint"}, ("another strategy",)),
        ({"faults": "none", "seed": 8}, ("other faults", "another seed")),
        ({"guarantee": "at-least-once"}, ("another guarantee",)),
        ({"settings": {**RUN.settings, "workload": {"records": 1, "partitions": 1}}}, ("another workload",)),
        ({"settings": {**RUN.settings, "brokers": 3}}, ("another number of brokers",)),
        ({"versions": {"pyspark": "4.2.0"}}, ()),
        ({"recovery_s": 99.0, "experiment": "another-name"}, ()),
    ],
)
def test_another_experiment_is_not_comparable_and_another_version_is(fields: dict[str, Any], obstacles: tuple[str, ...]) -> None:
    found = compare(night(0), night(1, **fields))
    assert (found.obstacles, found.comparable) == (obstacles, not obstacles)


def test_a_ratio_is_the_second_by_the_first_where_both_are_numbers_that_can_be_divided() -> None:
    changed = compare(night(0, caught_up_s=0.0), night(1, "F", recovery_s=5.0, caught_up_s=1.0, driver_starts=2))
    ratios = {each.name: each.ratio for each in changed.differences}
    assert ratios == {"outcome": None, "reason": None, "recovery_s": 2.5, "caught_up_s": None, "driver_starts": 2.0}


def test_terms_are_what_was_another_before_anything_was_measured() -> None:
    assert [each.name for each in conditions(night(0), night(1, "F", recovery_s=9.0, seed=8))] == ["seed"]
    assert same_settings(night(0), night(1, seed=8))
    assert not same_settings(night(0), night(1, settings={"brokers": 3}))
