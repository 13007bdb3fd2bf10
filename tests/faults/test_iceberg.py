"""Iceberg tables under faults: what each way of writing survives, and what it does not."""

from __future__ import annotations

from typing import Any

import pyarrow.parquet as pq
import pytest

from streamproof.evidence.folder import RunFolder
from streamproof.experiment.model import Experiment
from streamproof.run import runner
from streamproof.testbed.embedded import Testbed
from streamproof.verdict.verdict import Verdict

RECORDS = 2400
EARLY = 0.3


def _run(strategy: str, faults: list[dict[str, Any]]) -> tuple[Verdict, RunFolder]:
    workload = {"source": "synthetic", "records": RECORDS}
    folder = runner.run(
        Experiment(name=f"iceberg-{strategy}"[:60], strategy=strategy, workload=workload, faults=faults, seed=18, timeout_s=400)
    )
    verdict = Verdict.read(folder)
    assert [check for injection in verdict.injections for check in injection.evidence if not check.passed] == []
    assert [injection.took_effect for injection in verdict.injections] == [True] * len(faults)
    return verdict, folder


def _blamed(folder: RunFolder) -> set[str]:
    """What is said of each record that is not as it should be."""
    return {blame for blame in pq.read_table(folder.reconciliation, columns=["blame"]).column("blame").to_pylist() if blame}


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_icebergs_own_sink_survives_a_crash_after_its_snapshot_a_lost_commit_and_a_cut_catalog(testbed: Testbed) -> None:
    faults = [
        {"fault": "lose_last_commit", "at": 0.15},
        {"fault": "cut_postgres", "at": 0.4},
        {"fault": "crash_at_step", "parameters": {"step": "after_snapshot"}, "at": 0.65},
    ]
    verdict, _ = _run("iceberg_sink", faults)
    assert verdict.outcome == "PASSED", verdict.reason
    assert verdict.delivered == RECORDS
    assert verdict.read_twice is not None
    assert verdict.read_twice.records == RECORDS


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["lose_checkpoint_metadata", "expire_snapshots"])
@pytest.mark.parametrize(("strategy", "found"), [("iceberg_sink", "DUPLICATED"), ("iceberg_merge", None)])
def test_what_is_known_by_the_querys_id_is_written_twice_when_the_id_or_the_snapshot_is_gone(
    fault: str, strategy: str, found: str | None, testbed: Testbed
) -> None:
    verdict, folder = _run(strategy, [{"fault": fault, "at": EARLY}])
    assert verdict.broken.keys() == ({found} if found else set())
    assert verdict.outcome == ("FAILED" if found else "PASSED"), verdict.reason
    if found:
        assert all("snapshot" in blame for blame in _blamed(folder))


@pytest.mark.slow
def test_what_a_rollback_takes_back_is_written_again_and_was_missing_until_then(testbed: Testbed) -> None:
    verdict, _ = _run("iceberg_sink", [{"fault": "rollback_table", "at": EARLY}])
    assert (verdict.outcome, verdict.broken.keys()) == ("FAILED", {"OFFSET_AHEAD", "VANISHED"})
    assert verdict.delivered == RECORDS
