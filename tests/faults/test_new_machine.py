"""What a machine may lack: a Java of its own. And what it may have instead: a strategy that lives in a folder of the user's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from streamproof.testbed.embedded import Testbed
from tests.support.without_java import environment

STRATEGY = """
from streamproof.engines.spark.strategies.checkpoint import Checkpoint

class Mine(Checkpoint):
    name = "mine"
    summary = "a strategy in a folder of the user's"
"""
EXPERIMENT = "name: new-machine\nstrategy: mine\nworkload: {source: synthetic, records: 1000}\nseed: 3\n"


@pytest.mark.slow
def test_a_strategy_of_the_users_own_runs_where_the_only_java_came_with_the_set_up(testbed: Testbed, tmp_path: Path) -> None:
    without_java = environment(tmp_path)
    (tmp_path / "modules" / "my_strategies.py").write_text(STRATEGY)
    (tmp_path / "experiment.yaml").write_text(EXPERIMENT)
    env = {**without_java, "STREAMPROOF_STRATEGIES": "my_strategies:Mine"}
    command = [str(Path(sys.executable).with_name("streamproof")), "run", str(tmp_path / "experiment.yaml")]
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASSED: mine kept at-least-once for 1000 acknowledged records" in done.stdout
