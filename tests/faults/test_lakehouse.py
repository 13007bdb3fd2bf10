"""Faults that tables of Delta and Iceberg have in common: another writer, and metadata that are gone."""

from __future__ import annotations

import pytest

from streamproof.faults import FAULTS
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


@pytest.mark.slow
@pytest.mark.timeout(500)
@pytest.mark.parametrize("strategy", ["delta_sink", "iceberg_sink"])
def test_a_full_disk_of_the_table_costs_no_record_once_there_is_room(strategy: str, testbed: Testbed) -> None:
    if (reason := FAULTS["full_disk"].prevented()) is not None:
        pytest.skip(reason)
    verdict = struck(strategy, "full_disk", SEED, parameters={"disk": "table", "seconds": 60})
    assert (verdict.outcome, verdict.broken) == ("PASSED", {}), verdict.reason


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_a_delta_table_lets_one_of_two_drivers_commit_a_batch(testbed: Testbed) -> None:
    verdict = struck("delta_sink", "twin_driver", SEED, parameters={"step": "after_files", "takeover_s": 240})
    assert (verdict.outcome, verdict.broken) == ("PASSED", {}), verdict.reason


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_an_iceberg_table_lets_both_of_two_drivers_commit_a_batch(testbed: Testbed) -> None:
    window = "output file > UPDATE iceberg_tables"
    verdict = struck("iceberg_sink", "twin_driver", SEED, ["DUPLICATED"], {"window": window, "takeover_s": 240}, guarantee="at-least-once")
    assert verdict.outcome == "PASSED", verdict.reason


@pytest.mark.slow
@pytest.mark.timeout(500)
@pytest.mark.parametrize(("strategy", "found"), [("iceberg_sink", "DUPLICATED"), ("iceberg_merge", None)])
def test_what_only_the_snapshots_know_is_written_twice_after_a_compaction_and_an_expiry(
    strategy: str, found: str | None, testbed: Testbed
) -> None:
    verdict = struck(strategy, "maintain_table", SEED, timeout_s=600)
    assert verdict.broken.keys() == ({found} if found else set()), verdict.reason


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_an_iceberg_table_is_compacted_beside_its_job(testbed: Testbed) -> None:
    verdict = struck("iceberg_sink", "compact_table", SEED, timeout_s=600)
    assert (verdict.outcome, verdict.broken) == ("PASSED", {}), verdict.reason
