"""Records that vanish from the input before the job has read them: lost without a word, or the job ends and says so."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

from streamproof import settings
from streamproof.evidence.folder import RunFolder
from streamproof.testbed.embedded import Testbed
from streamproof.verdict.verdict import Verdict
from tests.support.faults import struck

SEED = 21


def _blamed(verdict: Verdict) -> set[str]:
    table = pq.read_table(RunFolder(settings.runs() / verdict.run).reconciliation, columns=["anomaly", "blame"]).to_pylist()
    return {row["blame"] for row in table if row["anomaly"] == "LOST" and row["blame"]}


@pytest.mark.slow
@pytest.mark.timeout(500)
@pytest.mark.parametrize("strategy", ["checkpoint", "delta_sink", "iceberg_sink"])
def test_what_expired_unread_is_lost_without_a_word_and_blamed_on_that(strategy: str, testbed: Testbed) -> None:
    verdict = struck(strategy, "expire_unread", SEED, ["LOST"], guarantee="at-most-once", fail_on_data_loss=False)
    (injection,) = verdict.injections
    assert verdict.outcome == "PASSED", verdict.reason
    assert verdict.anomalies["LOST"] == injection.target["unread"]
    assert all(blame.endswith("the source had deleted it before it was delivered (expire_unread-1)") for blame in _blamed(verdict))


@pytest.mark.slow
@pytest.mark.timeout(500)
@pytest.mark.parametrize("fault", ["expire_unread", "recreate_input"])
@pytest.mark.parametrize("strategy", ["checkpoint", "delta_sink"])
def test_a_source_that_may_not_lose_ends_the_query_and_names_the_error(fault: str, strategy: str, testbed: Testbed) -> None:
    verdict = struck(strategy, fault, SEED, ["LOST"], guarantee="at-most-once")
    (said,) = [check for check in verdict.injections[0].evidence if check.check == "a start of the job ended and its log says why"]
    assert "KafkaIllegalStateException" in said.detail or "KAFKA_DATA_LOSS" in said.detail


@pytest.mark.slow
@pytest.mark.timeout(500)
@pytest.mark.parametrize("grown", [False, True])
def test_a_topic_that_was_made_anew_is_taken_for_the_old_one(grown: bool, testbed: Testbed) -> None:
    more = {"fail_on_data_loss": grown}  # once it has grown the source does not notice, whatever it is told
    verdict = struck("iceberg_sink", "recreate_input", SEED, ["LOST"], {"grown": grown}, guarantee="at-most-once", **more)
    assert verdict.outcome == "PASSED", verdict.reason
    assert all("(recreate_input-1)" in blame for blame in _blamed(verdict))
