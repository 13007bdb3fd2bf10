"""A job whose worker this machine does not know as one of the run's: commands of the user's find it, kill it, and see that it is gone."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from streamproof.experiment.model import Experiment
from streamproof.run import runner
from streamproof.testbed.embedded import Testbed
from tests.support.checkout import ROOT

SCRIPT = [sys.executable, str(ROOT / "tests" / "faults" / "own_elsewhere.py")]


@pytest.mark.slow
def test_a_worker_that_runs_elsewhere_is_killed_by_its_role(testbed: Testbed, tmp_path: Path) -> None:
    file = tmp_path / "worker"
    template = {
        "find": shlex.join([*SCRIPT, "find", str(file)]),
        "kill": "kill -9 {name}",
        "evidence": f"{shlex.join([*SCRIPT, 'gone'])} {{id}}",
    }
    experiment = {
        "name": "elsewhere",
        "job": {"engine": "command", "promises": "at-least-once", "command": [*SCRIPT, "start", str(file)]},
        "testbed": "external",
        "external": {"roles": {"workers": template}},
        "workload": {"source": "synthetic", "records": 3000},
        "faults": [{"fault": "kill_process", "at": 0.3, "parameters": {"role": "workers"}}],
        "seed": 5,
        "timeout_s": 600,
    }
    folder = runner.run(Experiment.model_validate(experiment))
    verdict = folder.read_json(folder.verdict)
    assert verdict["outcome"] == "PASSED", verdict["reason"]
    (injection,) = verdict["injections"]
    checks = {check["check"]: check["passed"] for check in injection["evidence"]}
    assert checks["the processes of the member are gone"]
    assert checks["its place was taken"]
    assert all(checks.values())
