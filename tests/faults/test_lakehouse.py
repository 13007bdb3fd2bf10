"""Faults that tables of Delta and Iceberg have in common: another writer, and metadata that are gone."""

from __future__ import annotations

from typing import Any

import pytest

from streamproof.experiment.model import Experiment
from streamproof.run import runner
from streamproof.testbed.embedded import Testbed
from streamproof.verdict.verdict import Verdict

RECORDS = 2400


def _run(strategy: str, fault: dict[str, Any]) -> Verdict:
    described: dict[str, Any] = {
        "name": f"{fault['fault']}-{strategy}".replace("_", "-")[:60],
        "strategy": strategy,
        "workload": {"source": "synthetic", "records": RECORDS},
        "faults": [{"at": 0.3, **fault}],
        "seed": 19,
        "timeout_s": 400,
    }
    verdict = Verdict.read(runner.run(Experiment.model_validate(described)))
    assert [check for injection in verdict.injections for check in injection.evidence if not check.passed] == []
    assert [injection.took_effect for injection in verdict.injections] == [True]
    return verdict


@pytest.mark.slow
@pytest.mark.timeout(500)
@pytest.mark.parametrize("strategy", ["delta_sink", "delta_merge", "delta_foreach_txn", "iceberg_sink", "iceberg_merge"])
def test_a_batch_that_lost_the_race_against_another_writer_is_written_once(strategy: str, testbed: Testbed) -> None:
    verdict = _run(strategy, {"fault": "concurrent_writer"})
    assert (verdict.outcome, verdict.broken) == ("PASSED", {}), verdict.reason


@pytest.mark.slow
@pytest.mark.timeout(500)
@pytest.mark.parametrize("strategy", ["delta_sink", "delta_foreach_append", "iceberg_sink", "iceberg_merge"])
def test_a_table_that_lacks_a_part_of_its_metadata_is_refused_and_not_read_short(strategy: str, testbed: Testbed) -> None:
    verdict = _run(strategy, {"fault": "lose_table_log_entry"})
    assert (verdict.outcome, verdict.anomalies["LOST"]) == ("PASSED", 0), verdict.reason


@pytest.mark.slow
@pytest.mark.timeout(500)
@pytest.mark.parametrize("strategy", ["delta_sink", "delta_merge"])
def test_what_is_vacuumed_beside_the_job_is_missed_by_nobody(strategy: str, testbed: Testbed) -> None:
    verdict = _run(strategy, {"fault": "vacuum_table"})
    assert (verdict.outcome, verdict.broken) == ("PASSED", {}), verdict.reason
