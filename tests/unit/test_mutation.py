"""A slice of ``make mutate``: damage is found and named, legal histories raise no alarm, and an oracle that is blunt is seen."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from streamproof.evidence.folder import RunFolder
from streamproof.suites.expectations import records, results
from streamproof.verdict import judge as judging
from streamproof.verdict.anomaly import Anomaly
from streamproof.verdict.checks.commits import Commits
from streamproof.verdict.checks.matching import Finding
from streamproof.verdict.guarantee import Guarantee, Promise
from streamproof.verdict.judge import RunSpec, judge
from streamproof.verdict.stateful import reference
from tests.mutation import clean
from tests.mutation.damage import DAMAGES
from tests.mutation.run import DAMAGES as ALL
from tests.mutation.run import FIXTURES, JUDGES, due, judged, run

REAL = FIXTURES / "two-phase-commit-killed-between-commits"


def test_every_kind_of_damage_is_found_and_named_and_legal_histories_raise_no_alarm() -> None:
    result = run(7, len(ALL), 100, [FIXTURES])
    assert result.wrong == []
    assert len(ALL) >= 40
    assert all(tally.mutants >= 1 for tally in result.by_kind.values())
    for name in JUDGES:
        score = result.total(name)
        assert score.detected == score.named_rightly == score.asked
        assert score.asked >= 0.8 * len(ALL)
        assert score.false_alarms == 0
    assert result.legal_histories >= 100
    assert result.real > 0, "none was made from the real run"


def test_the_real_run_is_clean(tmp_path: Path) -> None:
    evidence = clean.read(REAL)
    assert evidence is not None
    assert judged(evidence, tmp_path) == ("PASSED", evidence.truth)


@pytest.mark.parametrize("kind", DAMAGES)
def test_the_real_run_is_found_damaged(tmp_path: Path, kind: str) -> None:
    evidence = clean.read(REAL)
    assert evidence is not None
    if not DAMAGES[kind](evidence, np.random.default_rng(3)):
        pytest.skip("this run has nothing that could be damaged so")
    outcome, named = judged(evidence, tmp_path)
    if evidence.spoilt is not None:
        assert evidence.spoilt in outcome
    else:
        assert (outcome, named) == (due(evidence), evidence.truth)


def test_a_real_run_of_a_strategy_whose_batches_are_not_atomic_is_seen_to_have_torn_one() -> None:
    """Its driver was killed when some tasks' transactions were committed; the next start committed the others. It promises no more."""
    folder = RunFolder(FIXTURES / "offset-in-transaction-killed-after-produce")
    spec = RunSpec("run", "experiment", "kafka_to_kafka", "offset_in_transaction", Guarantee.EXACTLY_ONCE, (Anomaly.TORN,), (), 1)
    judgement = judge(folder, spec)
    assert {anomaly: count for anomaly, count in judgement.verdict.to_json()["anomalies"].items() if count} == {"TORN": 2}
    assert [(finding.start, finding.batch, finding.copies) for finding in judgement.findings] == [(1, 6, 162), (2, 6, 38)]
    held = judge(folder, replace(spec, expected=(), promises=frozenset({Promise.ATOMIC}))).verdict.to_json()
    assert (held["outcome"], held["reason"]) == ("FAILED", "offset_in_transaction broke exactly-once: 2 TORN")


def test_the_same_seed_makes_the_same_mutants() -> None:
    one, two = (run(5, 12, 4, []).to_dict() for _ in range(2))
    assert one == two


def test_judges_without_one_of_their_checks_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are blunted at once: what each then misses has its own lines."""
    nothing: list[Finding] = []
    for checker in ("reordered", "torn"):
        monkeypatch.setattr(judging, checker, lambda *_: nothing)
    monkeypatch.setattr(judging.commits, "compare", lambda *_: Commits((), 0))
    for finds in ("compare", "dropped"):
        monkeypatch.setattr(reference, finds, lambda *_: nothing)
    queries = {**dict.fromkeys(records.ANOMALIES, records), "wrong_value": results, "dropped": results}
    for anomaly, of in queries.items():
        monkeypatch.setitem(of._VIEWS, anomaly, f"FROM ({of._VIEWS[anomaly]}) WHERE false")
    wrong = run(12, len(ALL), 0, []).wrong
    for judge_name, blunted in (("checkers", ("reordered", "torn", "offset_ahead", "wrong_value", "dropped")), ("suites", queries)):
        told = [re.search("missing (.*), surplus", line) for line in wrong if line.startswith(f"{judge_name}: ")]
        missed = " ".join(match[1] for match in told if match is not None)
        assert [anomaly for anomaly in blunted if f" {anomaly.upper()}" not in missed] == [], judge_name
