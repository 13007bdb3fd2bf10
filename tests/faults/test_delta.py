"""Delta tables under faults: what each way of writing survives, and what it does not."""

from __future__ import annotations

from typing import Any

import pyarrow.parquet as pq
import pytest

from streamproof.evidence.folder import RunFolder
from streamproof.experiment.model import Experiment
from streamproof.run import runner
from streamproof.sinks.delta import log
from streamproof.testbed.embedded import Testbed
from streamproof.verdict.verdict import Verdict

RECORDS = 2400
EARLY = 0.3


def _run(strategy: str, faults: list[dict[str, Any]], batches: int = 12) -> tuple[Verdict, RunFolder]:
    described = {"workload": {"source": "synthetic", "records": RECORDS}, "batch_records": RECORDS // batches, "faults": faults}
    folder = runner.run(Experiment(name=f"delta-{strategy}"[:60], strategy=strategy, seed=18, timeout_s=400, **described))
    verdict = Verdict.read(folder)
    assert [check for injection in verdict.injections for check in injection.evidence if not check.passed] == []
    assert [injection.took_effect for injection in verdict.injections] == [True] * len(faults)
    return verdict, folder


def _blamed(folder: RunFolder) -> set[str]:
    """What is said of each record that is not as it should be."""
    return {blame for blame in pq.read_table(folder.reconciliation, columns=["blame"]).column("blame").to_pylist() if blame}


@pytest.mark.timeout(500)
@pytest.mark.parametrize(
    "fault",
    [
        {"fault": "crash_at_step", "parameters": {"step": "after_version"}},
        pytest.param({"fault": "lose_last_commit"}, marks=pytest.mark.slow),
    ],
    ids=["crash_at_step", "lose_last_commit"],
)
def test_deltas_own_sink_survives_what_makes_it_write_a_batch_again_and_a_compaction_beside_it(
    fault: dict[str, Any], testbed: Testbed
) -> None:
    verdict, folder = _run("delta_sink", [{"fault": "compact_table", "at": 0.2}, {**fault, "at": 0.55}], batches=8)
    assert verdict.outcome == "PASSED", verdict.reason
    assert verdict.delivered == RECORDS
    assert verdict.read_twice is not None
    assert verdict.read_twice.records == RECORDS
    assert "OPTIMIZE" in {place.partition(", ")[2] for place in folder.read_json(folder.drain)["places"].values()}


@pytest.mark.slow
@pytest.mark.parametrize(("strategy", "found"), [("delta_sink", "DUPLICATED"), ("delta_foreach_txn", None)])
def test_a_checkpoint_without_its_metadata_makes_a_sink_write_twice_that_knows_only_the_query(
    strategy: str, found: str | None, testbed: Testbed
) -> None:
    verdict, folder = _run(strategy, [{"fault": "lose_checkpoint_metadata", "at": EARLY}])
    assert verdict.broken.keys() == ({found} if found else set())
    assert verdict.outcome == ("FAILED" if found else "PASSED"), verdict.reason
    if found:
        assert all("version" in blame and "transaction" in blame for blame in _blamed(folder))


@pytest.mark.slow
@pytest.mark.parametrize(("strategy", "found"), [("delta_sink", "LOST"), ("delta_foreach_txn", "LOST"), ("delta_merge", "OFFSET_AHEAD")])
def test_what_a_restored_table_remembers_is_not_written_again(strategy: str, found: str, testbed: Testbed) -> None:
    """MERGE writes it again; until then it is missing, though its offset was committed."""
    verdict, _ = _run(strategy, [{"fault": "restore_table", "at": EARLY}])
    assert (verdict.outcome, verdict.broken.keys()) == ("FAILED", {found, "VANISHED"})


@pytest.mark.slow
def test_batches_that_count_from_0_again_are_skipped_by_a_table_that_knows_the_numbers(testbed: Testbed) -> None:
    verdict, folder = _run("delta_foreach_txn_new_checkpoint", [{"fault": "kill_driver", "at": 0.2}])
    assert verdict.anomalies["LOST"] > 0
    assert verdict.outcome == "PASSED", f"it promises at-most-once: {verdict.reason}"
    assert verdict.anomalies["DUPLICATED"] == 0
    assert not log.versions(folder.path / "output"), "the table goes with the run"
