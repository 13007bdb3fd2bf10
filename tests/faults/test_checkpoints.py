"""Checkpoints that come back older than the output, or not at all: who writes again, and who asks first."""

from __future__ import annotations

from typing import Any

import pytest

from streamproof.experiment.model import Experiment
from streamproof.run import runner
from streamproof.testbed.embedded import Testbed
from streamproof.verdict.verdict import Verdict

RECORDS = 2400


def _run(strategy: str, fault: str, expect: list[str]) -> Verdict:
    described: dict[str, Any] = {
        "name": f"{fault}-{strategy}",
        "strategy": strategy,
        "workload": {"source": "synthetic", "records": RECORDS},
        "faults": [{"fault": fault, "at": 0.3}],
        "expect": expect,
        "seed": 18,
        "timeout_s": 400,
    }
    verdict = Verdict.read(runner.run(Experiment.model_validate(described)))
    assert [check for injection in verdict.injections for check in injection.evidence if not check.passed] == []
    assert [injection.took_effect for injection in verdict.injections] == [True]
    return verdict


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["rewind_checkpoint", "fresh_checkpoint"])
def test_what_relies_on_the_checkpoint_alone_writes_again(fault: str, testbed: Testbed) -> None:
    verdict = _run("checkpoint", fault, ["DUPLICATED"])
    assert verdict.outcome == "PASSED", verdict.reason
    assert verdict.anomalies["DUPLICATED"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["postgres_upsert", "delta_merge", "iceberg_merge"])
@pytest.mark.parametrize("fault", ["rewind_checkpoint", "fresh_checkpoint"])
def test_what_asks_the_rows_is_not_harmed(fault: str, strategy: str, testbed: Testbed) -> None:
    verdict = _run(strategy, fault, [])
    assert (verdict.outcome, verdict.broken) == ("PASSED", {}), verdict.reason


@pytest.mark.slow
@pytest.mark.timeout(500)
@pytest.mark.parametrize("strategy", ["delta_sink", "iceberg_sink"])
def test_what_knows_the_query_takes_a_new_one_for_another(strategy: str, testbed: Testbed) -> None:
    verdict = _run(strategy, "fresh_checkpoint", [])
    assert (verdict.outcome, verdict.broken.keys()) == ("FAILED", {"DUPLICATED"}), verdict.reason
