"""Real sweeps. Without ``slow``: each step of the two exactly-once strategies on Kafka, crashed in the hardest way there is."""

from __future__ import annotations

import os
import subprocess
import sys

import pyarrow.parquet as pq
import pytest

from chaos import sweep
from delivery.folder import RunFolder
from pipelines.failpoints import Action, Site
from pipelines.strategies import STRATEGIES
from testbed import settings
from testbed.embedded import Testbed
from testbed.settings import ROOT

MATTER_MOST = ("two_phase_commit", "offset_in_transaction")
DOUBLES = {("between_commits", "between_recovered")}


def _name(cell: sweep.Cell) -> str:
    return "-".join(filter(None, (cell.strategy, cell.step, cell.action, cell.then)))


def _quick(cell: sweep.Cell) -> bool:
    if cell.strategy not in MATTER_MOST:
        return False
    if cell.then is not None:
        return (cell.step, cell.then) in DOUBLES
    return cell.action == (Action.KILL_WORKER if cell.failpoint.at == Site.TASK else Action.KILL_DRIVER)


CELLS = [pytest.param(cell, id=_name(cell), marks=[] if _quick(cell) else [pytest.mark.slow]) for cell in sweep.cells()]


@pytest.mark.parametrize("cell", CELLS)
def test_a_crash_shows_what_the_strategy_predicts(testbed: Testbed, cell: sweep.Cell) -> None:
    result = sweep.attempt(cell, seed=5)
    assert result.as_predicted, result.to_dict()
    assert _unexplained(result) == [], "what the crash broke is not traced back to it"
    if STRATEGIES[cell.strategy].atomic:
        assert result.torn_s is not None, "nobody watched the batches become visible"


def _unexplained(result: sweep.Result) -> list[str]:
    """The blame of those lost and doubled records that does not name the injection."""
    folder = RunFolder(settings.runs() / result.run)
    rows = [row for row in pq.read_table(folder.reconciliation).to_pylist() if row["anomaly"] in ("LOST", "DUPLICATED")]
    return [row["blame"] for row in rows if row["row"] == "record" and "during crash_at_step-1, " not in row["blame"]]


def test_a_wrong_prediction_is_noticed(testbed: Testbed, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sweep's own negative control: a strategy that denies what its crash shows."""
    strategy = STRATEGIES["checkpoint"]
    (honest,) = strategy.failpoints
    monkeypatch.setattr(type(strategy), "failpoints", (type(honest)(honest.name, honest.at, honest.window),))
    (cell,) = sweep.cells(["checkpoint"])
    result = sweep.attempt(cell, seed=5)
    assert result.outcome == "PASSED", "at-least-once allows what was found"
    assert result.found["DUPLICATED"] > 0
    assert not result.as_predicted


@pytest.mark.slow
def test_the_example_of_the_documentation_is_swept_like_any_other(testbed: Testbed) -> None:
    environment = {**os.environ, "STREAMPROOF_STRATEGIES": "docs.examples.foreach_batch:ForeachBatch"}
    command = [sys.executable, "-m", "chaos.cli", "sweep", "foreach_batch", "--seed", "5"]
    answer = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "2 of 2 as predicted" in answer.stdout
