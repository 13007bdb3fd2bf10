"""The examples: plain jobs of a user's own, judged as their README says."""

from __future__ import annotations

import pytest

from streamproof.experiment.model import load
from streamproof.run import runner
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.process import marked
from streamproof.verdict.verdict import Verdict
from tests.support.checkout import ROOT

ORDERS = ROOT / "examples" / "orders_to_postgres"


def _verdict(name: str) -> Verdict:
    folder = runner.run(load(ORDERS / f"{name}.yaml"))
    assert marked(STREAMPROOF_RUN=folder.name) == [], "nothing of the job is left"
    return Verdict.read(folder)


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_a_batch_that_is_appended_by_jdbc_is_caught_doubling(testbed: Testbed) -> None:
    verdict = _verdict("append")
    assert verdict.outcome == "FAILED", verdict.reason
    assert verdict.anomalies["DUPLICATED"] > 0
    assert {anomaly for anomaly, count in verdict.anomalies.items() if count} == {"DUPLICATED"}
    assert verdict.not_judged


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_a_batch_that_is_taken_over_by_its_primary_key_passes(testbed: Testbed) -> None:
    verdict = _verdict("upsert")
    assert verdict.outcome == "PASSED", verdict.reason
    assert set(verdict.anomalies.values()) == {0}
    assert "not judged: payloads" in verdict.reason
