"""Any command as the job under test: a plain confluent-kafka loop, killed and cut off, judged by the same oracle."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from streamproof.evidence.folder import RunFolder
from streamproof.experiment.model import Experiment, load
from streamproof.run import runner, stages
from streamproof.suites import agreement
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.process import marked
from streamproof.verdict.judge import judge
from streamproof.verdict.verdict import Verdict
from tests.support.checkout import ROOT

IN_TRANSACTIONS = load(ROOT / "chaos" / "forward-exactly-once.yaml")


def _run(experiment: Experiment) -> RunFolder:
    folder = runner.run(experiment)
    assert marked(STREAMPROOF_RUN=folder.name) == [], "nothing of the job is left"
    return folder


def _verdict(experiment: Experiment) -> dict[str, Any]:
    return Verdict.read(_run(experiment)).to_json()


@pytest.fixture(scope="module")
def in_transactions(testbed: Testbed) -> RunFolder:
    """Killed once and cut off once; as it is written it is killed once more."""
    return _run(IN_TRANSACTIONS.model_copy(update={"faults": IN_TRANSACTIONS.faults[:2]}))


def test_a_loop_that_commits_in_transactions_keeps_exactly_once_when_it_is_killed_and_cut_off(in_transactions: RunFolder) -> None:
    verdict = Verdict.read(in_transactions).to_json()
    assert (verdict["outcome"], verdict["guarantee"]) == ("PASSED", "exactly-once"), verdict["reason"]
    assert [injection["took_effect"] for injection in verdict["injections"]] == [True, True]
    assert verdict["driver_starts"] >= 2  # a loop that finds its broker again bridges the cut
    assert set(verdict["anomalies"].values()) == {0}


def test_whole_batches_that_no_header_shows_are_not_judged(in_transactions: RunFolder) -> None:
    """The same run, had its job promised them."""
    assert IN_TRANSACTIONS.job is not None
    promising = Experiment(name="atomic", job={**IN_TRANSACTIONS.job, "also_promises": ["atomic"]}, workload=IN_TRANSACTIONS.workload)
    spec = replace(stages.run_spec(in_transactions), promises=promising.promises)
    judgement = judge(in_transactions, spec)
    assert judgement.verdict.outcome == "INCONCLUSIVE"
    assert judgement.verdict.reason == "atomic was not judged: 16000 of 16000 copies do not name the batch that wrote them"
    assert agreement.check(in_transactions, stages.suite_spec(spec), judgement.table) is None


@pytest.mark.slow
def test_the_same_loop_without_transactions_doubles_records_and_loses_none(testbed: Testbed) -> None:
    """The plugin's own tests run it too."""
    verdict = _verdict(load(ROOT / "chaos" / "forward-doubles.yaml"))
    assert verdict["outcome"] == "PASSED", verdict["reason"]
    assert verdict["anomalies"]["DUPLICATED"] > 0
    assert verdict["anomalies"]["LOST"] == 0


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["no-such-program"], "the job cannot be started: no-such-program"),
        pytest.param(
            ["{python}", "-c", "raise RuntimeError('no such order')"],
            "each time with: RuntimeError: no such order",
            marks=pytest.mark.slow,  # it waits between one start and the next
        ),
    ],
    ids=["no program", "ends at once"],
)
def test_a_command_that_never_gets_to_work_is_an_error_that_says_why(testbed: Testbed, command: list[str], says: str) -> None:
    job = {"engine": "command", "command": command, "promises": "exactly-once"}
    verdict = _verdict(Experiment(name="broken", job=job, workload={"source": "synthetic", "records": 1000}, seed=1))
    assert verdict["outcome"] == "ERROR"
    assert says in verdict["reason"]
