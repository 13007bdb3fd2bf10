"""Windows of real jobs: what is seen of them, and that a kill in the right one shows the planted bug, every time."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from streamproof.experiment.model import Experiment
from streamproof.run import runner, windows
from streamproof.testbed.embedded import Testbed
from streamproof.verdict.verdict import Verdict
from tests.support.checkout import ROOT

ZOO = ROOT / "tests" / "zoo"


def _experiment(job: str, variant: str, **changed: Any) -> Experiment:
    return Experiment.model_validate({**yaml.safe_load((ZOO / job / f"{variant}.yaml").read_text()), **changed})


def test_the_windows_of_a_job_are_seen(testbed: Testbed) -> None:
    seen = {window.name for window in windows.seen(windows.experiment_for(_experiment("mark_before_write", "buggy")))}
    assert {"COMMIT progress > COMMIT orders", "COMMIT orders > OffsetCommit", "OffsetCommit > COMMIT progress"} <= seen


@pytest.mark.parametrize(
    ("variant", "window"), [("buggy", "COMMIT progress > COMMIT orders"), pytest.param("repaired", None, marks=pytest.mark.slow)]
)
def test_a_kill_in_its_window_shows_the_bug(testbed: Testbed, variant: str, window: str | None) -> None:
    parameters = {} if window is None else {"window": window}
    experiment = _experiment("mark_before_write", variant, faults=[{"fault": "kill_at_window", "parameters": parameters}])
    verdict = Verdict.read(runner.run(experiment))
    assert [injection.took_effect for injection in verdict.injections] == [True], verdict.reason
    assert (verdict.outcome, verdict.anomalies.get("LOST", 0) > 0) == (("FAILED", True) if variant == "buggy" else ("PASSED", False))
