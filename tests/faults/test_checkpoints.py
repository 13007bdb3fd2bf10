"""Checkpoints that come back older than the output, or not at all: who writes again, and who asks first."""

from __future__ import annotations

import pytest

from streamproof.testbed.embedded import Testbed
from tests.support.faults import struck

SEED = 18


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["rewind_checkpoint", "fresh_checkpoint"])
def test_what_relies_on_the_checkpoint_alone_writes_again(fault: str, testbed: Testbed) -> None:
    verdict = struck("checkpoint", fault, SEED, ["DUPLICATED"])
    assert verdict.outcome == "PASSED", verdict.reason
    assert verdict.anomalies["DUPLICATED"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["postgres_upsert", "delta_merge", "iceberg_merge"])
@pytest.mark.parametrize("fault", ["rewind_checkpoint", "fresh_checkpoint"])
def test_what_asks_the_rows_is_not_harmed(fault: str, strategy: str, testbed: Testbed) -> None:
    verdict = struck(strategy, fault, SEED)
    assert (verdict.outcome, verdict.broken) == ("PASSED", {}), verdict.reason


@pytest.mark.slow
@pytest.mark.timeout(500)
@pytest.mark.parametrize("strategy", ["delta_sink", "iceberg_sink"])
def test_what_knows_the_query_takes_a_new_one_for_another(strategy: str, testbed: Testbed) -> None:
    verdict = struck(strategy, "fresh_checkpoint", SEED)
    assert (verdict.outcome, verdict.broken.keys()) == ("FAILED", {"DUPLICATED"}), verdict.reason
