"""Faults that tables of Delta and Iceberg have in common: another writer, and metadata that are gone."""

from __future__ import annotations

import pytest

from streamproof.testbed.embedded import Testbed
from tests.support.faults import struck

SEED = 19


@pytest.mark.slow
@pytest.mark.timeout(500)
@pytest.mark.parametrize("strategy", ["delta_sink", "delta_merge", "delta_foreach_txn", "iceberg_sink", "iceberg_merge"])
def test_a_batch_that_lost_the_race_against_another_writer_is_written_once(strategy: str, testbed: Testbed) -> None:
    verdict = struck(strategy, "concurrent_writer", SEED)
    assert (verdict.outcome, verdict.broken) == ("PASSED", {}), verdict.reason


@pytest.mark.slow
@pytest.mark.timeout(500)
@pytest.mark.parametrize("strategy", ["delta_sink", "delta_foreach_append", "iceberg_sink", "iceberg_merge"])
def test_a_table_that_lacks_a_part_of_its_metadata_is_refused_and_not_read_short(strategy: str, testbed: Testbed) -> None:
    verdict = struck(strategy, "lose_table_log_entry", SEED)
    assert (verdict.outcome, verdict.anomalies["LOST"]) == ("PASSED", 0), verdict.reason


@pytest.mark.slow
@pytest.mark.timeout(500)
@pytest.mark.parametrize("strategy", ["delta_sink", "delta_merge"])
def test_what_is_vacuumed_beside_the_job_is_missed_by_nobody(strategy: str, testbed: Testbed) -> None:
    verdict = struck(strategy, "vacuum_table", SEED)
    assert (verdict.outcome, verdict.broken) == ("PASSED", {}), verdict.reason


@pytest.mark.slow
@pytest.mark.timeout(500)
@pytest.mark.parametrize("strategy", ["delta_sink", "delta_merge", "iceberg_merge"])
def test_an_output_whose_files_are_rewritten_has_each_record_once_in_every_version(strategy: str, testbed: Testbed) -> None:
    verdict = struck(strategy, "rewrite_table", SEED)
    assert (verdict.outcome, verdict.broken) == ("PASSED", {}), verdict.reason
