"""A state store whose newest file is damaged: a job refuses it, and is exact once it is back. An older one it takes."""

from __future__ import annotations

from typing import Any

import pytest

from streamproof.load.spec import Source
from streamproof.testbed.embedded import Testbed
from tests.support.faults import struck

SEED = 12
STORES = ["default", "rocksdb"]


@pytest.mark.slow
@pytest.mark.timeout(500)
@pytest.mark.parametrize("how", ["lose", "truncate"])
@pytest.mark.parametrize("store", STORES)
def test_a_damaged_state_is_refused_and_nothing_is_wrong_once_it_is_back(store: str, how: str, testbed: Testbed) -> None:
    verdict = struck("two_phase_commit", "damage_state", SEED, parameters={"how": how}, **_stateful(store))
    assert (verdict.outcome, verdict.broken) == ("PASSED", {}), verdict.reason
    assert verdict.results is not None
    assert verdict.results.due > 100


@pytest.mark.slow
@pytest.mark.timeout(500)
@pytest.mark.parametrize("store", STORES)
def test_an_older_state_under_the_new_name_is_taken_and_gives_wrong_results(store: str, testbed: Testbed) -> None:
    verdict = struck("two_phase_commit", "damage_state", SEED, parameters={"how": "older"}, **_stateful(store))
    assert verdict.outcome == "FAILED", verdict.reason
    assert "WRONG_VALUE" in verdict.broken, verdict.reason


def _stateful(store: str) -> dict[str, Any]:
    return {
        "pipeline": "departures",
        "workload": {"source": Source.FLIGHTS, "records": 4000},
        "stateful": {"disorder_min": 1200, "late_share": 0.02, "state_store": store},
        "batch_records": 400,
    }
