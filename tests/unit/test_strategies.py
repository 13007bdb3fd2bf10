"""The catalogue of strategies: what each says of itself fits together, and a strategy from elsewhere can join."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from streamproof import registry
from streamproof.engines.spark.registry import STRATEGIES
from streamproof.jobs.failpoint import Site
from tests.support.checkout import ROOT

MINE = """
from streamproof.engines.spark.strategies.checkpoint import Checkpoint

class Mine(Checkpoint):
    name = "mine"
"""


def _streamproof(project: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "STREAMPROOF_PROJECT": str(project), **variables}
    command = [sys.executable, "-m", "streamproof.cli.main", *words]
    return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def _listed(extra: str, project: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return _streamproof(project, "strategies", "--json", STREAMPROOF_STRATEGIES=extra)


def test_a_strategy_from_another_project_joins_by_the_environment(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    listed = json.loads(_listed("mine:Mine", tmp_path).stdout)
    assert [found["name"] for found in listed] == [*registry.installed("strategies"), "mine"]


@pytest.mark.parametrize(("group", "name"), [("faults", "freeze_driver"), ("strategies", "foreach_batch")])
def test_what_this_project_registers_is_listed_here_and_nowhere_else(tmp_path: Path, group: str, name: str) -> None:
    here, elsewhere = (json.loads(_streamproof(project, group, "--json").stdout) for project in (ROOT, tmp_path))
    assert [found["name"] for found in elsewhere] == list(registry.installed(group))
    assert [found["name"] for found in here] == [*registry.installed(group), name]


@pytest.mark.parametrize("entry", ["nope", "no.such.module:Thing", "pipelines.foreach_batch:Thing"])
def test_what_is_no_strategy_is_named(entry: str) -> None:
    answer = _listed(entry)
    assert answer.returncode != 0
    assert entry in answer.stderr.splitlines()[-1]


@pytest.mark.parametrize("name", STRATEGIES)
def test_what_a_crash_must_show_its_guarantee_allows(name: str) -> None:
    strategy = STRATEGIES[name]
    for point in strategy.failpoints:
        assert not (point.provokes | point.allows) & strategy.guarantee.forbidden, point.name


@pytest.mark.parametrize("name", STRATEGIES)
def test_doubles_name_steps_in_the_order_of_a_crash_and_its_recovery(name: str) -> None:
    strategy = STRATEGIES[name]
    sites = {point.name: point.at for point in strategy.failpoints}
    for first, then in strategy.doubles:
        assert sites[first] != Site.RECOVERY
        assert sites[then] != Site.WATCHED


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_step_of_recovery_is_crashed_by_a_double_fault(name: str) -> None:
    strategy = STRATEGIES[name]
    recovering = {point.name for point in strategy.failpoints if point.at == Site.RECOVERY}
    assert recovering <= {then for _, then in strategy.doubles}


def test_what_a_task_imports_knows_no_list_of_engines_faults_or_strategies() -> None:
    """Each Python process of a task imports its strategy's sink: what is looked up elsewhere would be paid for there."""
    code = (
        "import sys, streamproof.engines.spark.strategies.two_phase_commit_sink\n"
        "print([name for name in ('streamproof.registry', 'streamproof.testbed', 'pydantic') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
